"""A problem: a profile, a hardware, and the memory budget that a plan must meet."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from slackswap.devices import mixed_devices
from slackswap.display import render
from slackswap.errors import InvalidHardware, InvalidPlan, InvalidProfile, SlackSwapError
from slackswap.frozen import set_fields
from slackswap.hardware import Hardware
from slackswap.plan import Plan
from slackswap.profile import Action, Profile
from slackswap.quantities import UNLIMITED_BYTES, Budget, parse_budget, shown


@dataclass(frozen=True)
class Problem:
    """A profile, a hardware and a memory budget.

    Parameters
    ----------
    profile : Profile
        The iteration to plan for.
    hardware : Hardware
        Device and link.
    budget : int, float, str or None
        Bytes (an integer, or ``20GB``, ``20GiB``) or a fraction of the keep-everything peak
        (a float, ``0.5`` or ``50%``), rounded down. None is unlimited. It covers everything the
        cost model counts: inputs, activations, workspaces; not weights or optimizer state.

    Attributes
    ----------
    budget_bytes : int
        The budget in bytes; `UNLIMITED_BYTES` stands for no limit.
    """

    profile: Profile
    hardware: Hardware
    budget: Budget | None = None
    budget_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.profile, Profile):
            raise InvalidProfile(f"{shown(self.profile)} is not a Profile", where="problem",
                                 fix="load one with slackswap.load_profile")
        if not isinstance(self.hardware, Hardware):
            raise InvalidHardware(f"{shown(self.hardware)} is not a Hardware", where="problem",
                                  fix="load one with slackswap.load_hardware")
        amount: int | Fraction = (
            UNLIMITED_BYTES if self.budget is None else parse_budget(self.budget)
        )
        if isinstance(amount, Fraction):
            amount = min(floor(amount * self.keep_all_peak_bytes), UNLIMITED_BYTES)
        set_fields(self, budget_bytes=amount)

    @property
    def keep_all_peak_bytes(self) -> int:
        """Peak of the profile's keep-everything plan: what a fraction is taken of."""
        return self.profile.keep_all_peak_bytes

    @property
    def warning(self) -> str:
        """What keeps the figures from being those of one device; empty if nothing does."""
        return mixed_devices(self.profile, self.hardware)

    @property
    def is_limited(self) -> bool:
        """Whether there is a budget at all."""
        return self.budget_bytes < UNLIMITED_BYTES

    @property
    def fraction(self) -> float:
        """The budget as a fraction of the keep-everything peak."""
        return self.budget_bytes / max(1, self.keep_all_peak_bytes)

    def with_budget(self, budget: Budget | None) -> Problem:
        """Return the same profile and hardware under another budget."""
        return Problem(self.profile, self.hardware, budget)

    def with_hardware(self, hardware: Hardware) -> Problem:
        """Return the same profile and budget in bytes on another hardware."""
        return Problem(self.profile, hardware, self.budget_bytes)

    def check_plan(self, plan: Plan) -> None:
        """Check that a plan can be carried out here, whatever the budget.

        An op that must run again but cannot is found when its closure is built, by
        `slackswap.cost_model.schedule.backward_schedule`.

        Raises
        ------
        InvalidPlan
            Naming the tensor, gate or barrier and what would fix it.
        """
        if not isinstance(plan, Plan):
            raise InvalidPlan(f"{shown(plan)} is not a Plan", where="plan",
                              fix="make one with slackswap.Plan(actions={...})")
        profile, graph = self.profile, self.profile.graph
        if plan.profile_sha256 is not None and plan.profile_sha256 != profile.sha256:
            raise InvalidPlan(
                f"was made for profile {plan.profile_sha256[:12]}..., not for "
                f"{profile.name!r} ({profile.sha256[:12]}...)",
                where="profile_sha256",
                fix="plan again for this profile, or give the profile it was made for",
            )
        for name, action in plan.actions.items():
            index = self._index(name, "actions")
            if graph.is_input[index]:
                if action is not Action.KEEP:
                    raise InvalidPlan(
                        f"{action}s {name!r}, which is an input and always kept",
                        where="actions", fix="keep it, or leave it out",
                    )
            elif action not in profile.tensors[index].allowed:
                raise InvalidPlan(
                    f"{action}s {name!r}, which allows only "
                    f"{', '.join(profile.tensors[index].allowed) or 'nothing'}",
                    where="actions", fix="choose an allowed action",
                )
        for index in graph.is_saved.nonzero()[0].tolist():
            tensor = profile.tensors[index]
            if Action.KEEP not in tensor.allowed and tensor.name not in plan.actions:
                raise InvalidPlan(
                    f"keeps {tensor.name!r} by not naming it, but it allows only "
                    f"{', '.join(tensor.allowed) or 'nothing'}",
                    where="actions", fix="give it an allowed action",
                )
        self._check_transfers(plan)
        self._check_order(plan)

    def _check_transfers(self, plan: Plan) -> None:
        hardware, limit = self.hardware, self.hardware.host_bytes
        swapped = 0
        for name, action in plan.actions.items():
            if action is Action.SWAP:
                nbytes = self.profile.tensors[self.profile.index_of[name]].nbytes
                swapped += nbytes
                longest = max(hardware.d2h_ns(nbytes), hardware.h2d_ns(nbytes))
                if longest > hardware.longest_transfer_ns:
                    raise InvalidPlan(
                        f"swaps {name!r}, whose transfer of {nbytes} bytes takes {longest} ns; "
                        f"the cost model counts up to {hardware.longest_transfer_ns} ns exactly",
                        where="actions", fix="do not swap it, or check the unit of the bandwidth",
                    )
        if limit is not None and swapped > limit:
            raise InvalidPlan(
                f"swaps {swapped} bytes, {swapped - limit} more than the host's {limit}",
                where="actions", fix="swap fewer tensors, or raise host_bytes",
            )

    def _check_order(self, plan: Plan) -> None:
        counts = {"forward": len(self.profile.forward), "backward": len(self.profile.backward)}
        for where, gates, kind in (
            ("offload_gates", plan.offload_gates, "forward"),
            ("prefetch_gates", plan.prefetch_gates, "backward"),
        ):
            for name, op in gates.items():
                self._index(name, where)
                _check_range(op, counts[kind], f"{where}[{name!r}]", kind)
        for where, barriers, kind in (
            ("offload_barriers", plan.offload_barriers, "forward"),
            ("prefetch_barriers", plan.prefetch_barriers, "backward"),
        ):
            for op in barriers:
                _check_range(op, counts[kind], where, kind)

    def _index(self, name: str, where: str) -> int:
        index = self.profile.index_of.get(name)
        if index is None:
            raise InvalidPlan(
                f"names tensor {name!r}, which profile {self.profile.name!r} does not have",
                where=where, fix="check the name, or give the profile the plan was made for",
            )
        return index

    def _repr_html_(self) -> str:
        return render(self)


def _check_range(op: int, count: int, where: str, kind: str) -> None:
    if not 0 <= op < count:
        raise InvalidPlan(
            f"names {kind} op {op}, but there are only {count}", where=where,
            fix=f"use 0 to {count - 1}" if count else f"the profile has no {kind} ops",
        )


def checked_problem(problem: object) -> Problem:
    """Return a problem; raise `SlackSwapError` for anything else."""
    if isinstance(problem, Problem):
        return problem
    raise SlackSwapError(f"{shown(problem)} is not a Problem", where="problem",
                         fix="make one with slackswap.Problem(profile, hardware, budget)")
