"""Scoring action codes of one problem by the hundred thousand, on the compiled kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slackswap.errors import InvalidProfile, SlackSwapError
from slackswap.frozen import frozen_view, read_only
from slackswap.hardware import Hardware
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.profile import ALL_ACTIONS, MAX_TOTAL
from slackswap.quantities import Budget
from slackswap.result import Evaluation, Infeasibility, Phase

if TYPE_CHECKING:
    from slackswap.cost_model.kernel import GraphArrays, LinkArrays

Codes = NDArray[np.int8]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Code of an action in arrays: its place in keep, swap, recompute.
CODE_OF = {action: np.int8(code) for code, action in enumerate(ALL_ACTIONS)}
KEEP, SWAP, RECOMPUTE = (CODE_OF[action] for action in ALL_ACTIONS)


class Scorer:
    """Scores action codes of one problem by the hundred thousand.

    What planners and searches call. Codes are int8 arrays, one entry a tensor: 0 keep, 1 swap,
    2 recompute (for an intermediate: drop); inputs are 0.

    Parameters
    ----------
    problem : Problem
        Profile, hardware and budget; laid out for the kernel once.

    Attributes
    ----------
    allowed : bool[tensors, 3]
        Which code each tensor may take.
    default : int8[tensors]
        Codes of the plan that names no tensor.
    """

    def __init__(self, problem: Problem) -> None:
        self._base = problem
        self._has_own_durations = False
        self.graph = problem.profile.graph
        self.default: Codes = read_only(
            np.where(self.graph.is_intermediate, RECOMPUTE, KEEP).astype(np.int8)
        )
        self._duration_ns = problem.profile.duration_ns

    @cached_property
    def problem(self) -> Problem:
        """What is scored; after `with_durations` its profile is rebuilt when first asked for."""
        if not self._has_own_durations:
            return self._base
        profile = self._base.profile
        forward = tuple(
            replace(op, duration_ns=duration)
            for op, duration in zip(profile.forward, self.graph.forward_ns.tolist(), strict=True)
        )
        backward = tuple(
            replace(op, duration_ns=duration)
            for op, duration in zip(profile.backward, self.graph.backward_ns.tolist(), strict=True)
        )
        return replace(self._base, profile=replace(profile, forward=forward, backward=backward))

    def with_durations(self, forward_ns: ArrayLike, backward_ns: ArrayLike) -> Scorer:
        """Return a scorer of the same problem in which ops take other times.

        For scoring plans in many scenarios: all arrays but the durations are shared, and nothing
        of the profile is copied. Scores are those of the rebuilt profile, which `problem` gives.

        Parameters
        ----------
        forward_ns : int[forward ops]
            Durations in nanoseconds.
        backward_ns : int[backward ops]
            Likewise.

        Raises
        ------
        InvalidProfile
            When a duration is no integer or negative, they are too many or too few, or their sum
            does not fit.
        """
        forward = _durations(forward_ns, self.graph.n_forward, "forward_ns")
        backward = _durations(backward_ns, self.graph.n_backward, "backward_ns")
        total = sum(forward.tolist()) + sum(backward.tolist())
        if total > MAX_TOTAL:
            raise InvalidProfile(
                f"durations add up to {total} ns, above 2^60", where="durations",
                fix="check the unit: nanoseconds",
            )
        other = self._copy("problem")
        other._has_own_durations = True
        other._duration_ns = total
        other.graph = replace(self.graph, forward_ns=forward, backward_ns=backward)
        other._graph_arrays = self._graph_arrays._replace(forward_ns=forward, backward_ns=backward)
        return other

    def with_hardware(self, hardware: Hardware) -> Scorer:
        """Return a scorer of the same profile and budget in bytes on another hardware."""
        other = self._copy("problem", "d2h_ns", "h2d_ns", "_link_arrays")
        other._base = self._base.with_hardware(hardware)
        return other

    def with_budget(self, budget: Budget | None) -> Scorer:
        """Return a scorer of the same profile and hardware under another budget."""
        other = self._copy("problem")
        other._base = self._base.with_budget(budget)
        return other

    def _copy(self, *forgotten: str) -> Scorer:
        """Return a copy that shares all that is laid out, without some cached properties."""
        other = copy(self)
        for name in forgotten:
            other.__dict__.pop(name, None)
        return other

    @cached_property
    def allowed(self) -> Bools:
        """Which code each tensor may take."""
        tensors = self._base.profile.tensors
        # Few tensors differ, so each distinct choice is looked at once.
        row_of = {choice: row for row, choice in enumerate({t.allowed: None for t in tensors})}
        rows = np.array(
            [[action in choice for action in ALL_ACTIONS] for choice in row_of], dtype=np.bool_
        ).reshape(-1, len(ALL_ACTIONS))
        table: Bools = rows[[row_of[t.allowed] for t in tensors]]
        table[self.graph.is_intermediate, RECOMPUTE] = True
        table[self.graph.is_input] = [True, False, False]
        return read_only(table)

    @cached_property
    def d2h_ns(self) -> Ints:
        """Time to offload each tensor, alone; capped where it is too long to be swapped."""
        return self._per_size(self._base.hardware.d2h_ns)

    @cached_property
    def h2d_ns(self) -> Ints:
        """Time to prefetch each tensor, alone; capped likewise."""
        return self._per_size(self._base.hardware.h2d_ns)

    def encode(self, plan: Plan) -> Codes:
        """Return a plan's actions as codes; gates and barriers are not part of them."""
        codes = self.default.copy()
        index_of = self._base.profile.index_of
        for name, action in plan.actions.items():
            codes[index_of[name]] = CODE_OF[action]
        return codes

    def decode(self, codes: Codes) -> Plan:
        """Return the plan of codes; tensors left at their default are not named."""
        tensors = self._base.profile.tensors
        named = np.flatnonzero(codes != self.default)
        return Plan(
            {
                tensors[t].name: ALL_ACTIONS[code]
                for t, code in zip(named.tolist(), codes[named].tolist(), strict=True)
            }
        )

    def score(
        self,
        codes: Codes,
        *,
        jobs: int = 1,
        offload_gates: Ints | None = None,
        prefetch_gates: Ints | None = None,
        offload_barriers: Bools | None = None,
        prefetch_barriers: Bools | None = None,
    ) -> Scores:
        """Score a batch of action codes.

        Parameters
        ----------
        codes : int8[plans, tensors] or int8[tensors]
            The plans.
        jobs : int
            Threads; the result does not depend on it.
        offload_gates, prefetch_gates : int64[plans, tensors], optional
            Op index, or -1 for none.
        offload_barriers, prefetch_barriers : bool[plans, ops], optional
            Where the barriers are.

        Returns
        -------
        Scores
            Codes that break a tensor's `allowed` or the host's size, swap what takes too long to
            transfer, or need an op to run again that cannot, are marked invalid rather than raised.
        """
        from slackswap.cost_model import kernel

        # Read-only like the graph's arrays, so that the kernel is compiled for one type alone.
        codes = frozen_view(np.ascontiguousarray(np.atleast_2d(codes), dtype=np.int8))
        count, graph = len(codes), self.graph
        gates = offload_gates is not None or prefetch_gates is not None
        barriers = offload_barriers is not None or prefetch_barriers is not None
        order = (
            _filled(offload_gates, gates, (count, graph.n_tensors), -1),
            _filled(prefetch_gates, gates, (count, graph.n_tensors), -1),
            _filled(offload_barriers, barriers, (count, graph.n_forward), False),
            _filled(prefetch_barriers, barriers, (count, graph.n_backward), False),
        )
        table = np.empty((count, kernel.N_COLUMNS), dtype=np.int64)
        breaks_rules = self._breaks_rules(codes)

        def run(part: slice) -> None:
            work = kernel.workspace(graph.n_tensors, graph.n_forward, graph.n_backward)
            capacity = graph.n_forward + graph.n_backward + 1
            done = 0
            while done < len(codes[part]):
                done = kernel.simulate_batch(
                    self._graph_arrays, self._link_arrays, self._base.budget_bytes, codes[part],
                    kernel.OrderArrays(*(rows[part] for rows in order)),
                    work, kernel.step_lists(capacity), table[part], done,
                )
                capacity *= 2

        parts = [slice(a, a + -(-count // jobs)) for a in range(0, count, -(-count // jobs) or 1)]
        if len(parts) > 1:
            with ThreadPoolExecutor(len(parts)) as pool:
                list(pool.map(run, parts))
        else:
            run(slice(None))
        return Scores(self._base, table, breaks_rules, self._duration_ns)

    def score_plans(self, plans: Sequence[Plan], *, jobs: int = 1) -> Scores:
        """Score plans with their gates and barriers; they must pass `Problem.check_plan`."""
        count, graph = len(plans), self.graph
        codes = np.array([self.encode(plan) for plan in plans], dtype=np.int8)
        codes = codes.reshape(count, graph.n_tensors)
        if not any(plan.has_order for plan in plans):
            return self.score(codes, jobs=jobs)
        index_of = self._base.profile.index_of
        gates = np.full((2, count, graph.n_tensors), -1, dtype=np.int64)
        offload_barriers = np.zeros((count, graph.n_forward), dtype=np.bool_)
        prefetch_barriers = np.zeros((count, graph.n_backward), dtype=np.bool_)
        for number, plan in enumerate(plans):
            for side, entries in enumerate((plan.offload_gates, plan.prefetch_gates)):
                for name, op in entries.items():
                    gates[side, number, index_of[name]] = op
            offload_barriers[number, list(plan.offload_barriers)] = True
            prefetch_barriers[number, list(plan.prefetch_barriers)] = True
        return self.score(
            codes,
            jobs=jobs,
            offload_gates=gates[0],
            prefetch_gates=gates[1],
            offload_barriers=offload_barriers,
            prefetch_barriers=prefetch_barriers,
        )

    @cached_property
    def _graph_arrays(self) -> GraphArrays:
        from slackswap.cost_model import kernel

        return kernel.graph_arrays(self.graph)

    @cached_property
    def _link_arrays(self) -> LinkArrays:
        from slackswap.cost_model.kernel import LinkArrays

        hardware = self._base.hardware
        return LinkArrays(
            self.d2h_ns, self.h2d_ns, hardware.full_duplex, *hardware.contended_ppm
        )

    @cached_property
    def _restricted(self) -> tuple[Ints, Bools]:
        """Tensors that may not take every code, and which each may."""
        restricted = np.flatnonzero(~self.allowed.all(axis=1))
        return read_only(restricted), read_only(self.allowed[restricted])

    @cached_property
    def _sizes(self) -> tuple[Ints, Ints]:
        """Distinct sizes, and the place of each tensor's among them."""
        sizes, place = np.unique(self.graph.nbytes, return_inverse=True)
        return read_only(sizes), read_only(place)

    def _per_size(self, duration_of: Callable[[int], int]) -> Ints:
        # In Python integers: bytes x 10^9 overflows 64 bits above 9.2 GB.
        sizes, place = self._sizes
        most = self._base.hardware.longest_transfer_ns
        durations = [min(duration_of(size), most + 1) for size in sizes.tolist()]
        return read_only(np.array(durations, dtype=np.int64)[place])

    def _breaks_rules(self, codes: Codes) -> Bools:
        if codes.size and not KEEP <= codes.min() <= codes.max() <= RECOMPUTE:
            raise SlackSwapError(
                "a code is none of 0, 1 and 2", where="codes",
                fix="use KEEP, SWAP and RECOMPUTE of slackswap.cost_model.scorer",
            )
        restricted, allowed = self._restricted
        permitted = allowed[np.arange(len(restricted)), codes[:, restricted]]
        broken: Bools = np.logical_not(permitted.all(axis=1))
        most = self._base.hardware.longest_transfer_ns
        too_long = np.flatnonzero(np.maximum(self.d2h_ns, self.h2d_ns) > most)
        if len(too_long):
            broken = broken | (codes[:, too_long] == SWAP).any(axis=1)
        host_bytes = self._base.hardware.host_bytes
        if host_bytes is not None:
            broken = broken | ((codes == SWAP) @ self.graph.nbytes > host_bytes)
        return broken


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores of a batch of plans, one row a plan.

    Attributes
    ----------
    problem : Problem
        What was scored; after `Scorer.with_durations` with the profile's own durations.
    table : int64[plans, columns]
        Raw results, columns as in `slackswap.cost_model.kernel`.
    breaks_rules : bool[plans]
        Codes that break a tensor's `allowed`, the host's size or the longest transfer.
    duration_ns : int
        Sum of all durations, which throughput is relative to.
    """

    problem: Problem
    table: Ints
    breaks_rules: Bools
    duration_ns: int

    @property
    def feasible(self) -> Bools:
        """Valid and within the budget."""
        from slackswap.cost_model import kernel

        fits: Bools = (self.table[:, kernel.OUTCOME] == kernel.FITS) & ~self.breaks_rules
        return fits

    @property
    def valid(self) -> Bools:
        """Could be carried out with enough memory."""
        from slackswap.cost_model import kernel

        runs: Bools = self.table[:, kernel.OUTCOME] != kernel.CANNOT_RUN_AGAIN
        return runs & ~self.breaks_rules

    @property
    def iteration_ns(self) -> Ints:
        """Time of each plan; meaningless where not feasible."""
        from slackswap.cost_model import kernel

        column: Ints = self.table[:, kernel.ITERATION_NS]
        return column

    @property
    def shortfall_bytes(self) -> Ints:
        """Bytes missing where a plan got stuck; 0 where feasible."""
        from slackswap.cost_model import kernel

        column: Ints = self.table[:, kernel.SHORTFALL_BYTES]
        return column

    def best(self) -> int | None:
        """Return the row of the fastest feasible plan, the first of equals; None if none is."""
        feasible = np.flatnonzero(self.feasible)
        if not len(feasible):
            return None
        return int(feasible[np.argmin(self.iteration_ns[feasible])])

    def check_valid(self) -> None:
        """Raise `InvalidPlan` for the first plan that needs an op to run again that cannot."""
        from slackswap.cost_model import kernel
        from slackswap.cost_model.schedule import cannot_run_again

        for row in self.table[self.table[:, kernel.OUTCOME] == kernel.CANNOT_RUN_AGAIN].tolist():
            raise cannot_run_again(
                self.problem.profile, row[kernel.STUCK_RECOMPUTE], row[kernel.STUCK_OP]
            )

    def evaluation(self, number: int) -> Evaluation:
        """Return one row as an `Evaluation`."""
        from slackswap.cost_model import kernel

        row = self.table[number].tolist()
        if row[kernel.OUTCOME] != kernel.FITS:
            return Evaluation(feasible=False, infeasible=self._infeasibility(row))
        iteration, moved = row[kernel.ITERATION_NS], row[kernel.MOVED_BYTES]
        duration = self.duration_ns
        return Evaluation(
            feasible=True,
            iteration_ns=iteration,
            forward_ns=row[kernel.FORWARD_NS],
            stall_forward_ns=row[kernel.STALL_FORWARD_NS],
            stall_backward_ns=row[kernel.STALL_BACKWARD_NS],
            recompute_ns=row[kernel.RECOMPUTE_NS],
            peak_bytes=row[kernel.PEAK_BYTES],
            throughput=duration / iteration if iteration else 1.0,
            offloaded_bytes=moved,
            prefetched_bytes=moved,
            d2h_busy_ns=row[kernel.D2H_BUSY_NS],
            h2d_busy_ns=row[kernel.H2D_BUSY_NS],
            d2h_utilisation=row[kernel.D2H_BUSY_NS] / iteration if iteration else 0.0,
            h2d_utilisation=row[kernel.H2D_BUSY_NS] / iteration if iteration else 0.0,
        )

    def _infeasibility(self, row: list[int]) -> Infeasibility:
        from slackswap.cost_model import kernel

        profile = self.problem.profile
        phase = {
            kernel.STUCK_FORWARD: Phase.FORWARD,
            kernel.STUCK_BACKWARD: Phase.BACKWARD,
            kernel.STUCK_INPUTS: Phase.INPUTS,
        }[row[kernel.OUTCOME]]
        op, again, tensor = (
            row[kernel.STUCK_OP], row[kernel.STUCK_RECOMPUTE], row[kernel.STUCK_TENSOR]
        )
        ops: Sequence[object] = profile.forward if phase is Phase.FORWARD else profile.backward
        return Infeasibility(
            phase=phase,
            op_index=op,
            op="" if phase is Phase.INPUTS else ops[op].name,  # type: ignore[attr-defined]
            recompute=None if again < 0 else profile.forward[again].name,
            tensor=None if tensor < 0 else profile.tensors[tensor].name,
            shortfall_bytes=row[kernel.SHORTFALL_BYTES],
            time_ns=row[kernel.STUCK_NS],
        )


def _durations(values: ArrayLike, count: int, where: str) -> Ints:
    given = np.asarray(values)
    if given.shape != (count,):
        raise InvalidProfile(
            f"has the shape {given.shape}, not ({count},)", where=where,
            fix="give one duration an op",
        )
    # An empty list has no integer type.
    if count and given.dtype.kind not in "iu":
        raise InvalidProfile(
            f"is of type {given.dtype}", where=where, fix="round to whole nanoseconds",
        )
    if count and not 0 <= int(given.min()) <= int(given.max()) <= MAX_TOTAL:
        raise InvalidProfile(
            f"lies between {given.min()} and {given.max()} ns", where=where,
            fix="give 0 to 2^60 nanoseconds",
        )
    return read_only(np.array(given, dtype=np.int64))


def _filled(
    rows: NDArray[np.generic] | None, used: bool, shape: tuple[int, int], blank: int | bool
) -> NDArray[np.generic]:
    kind: type[np.bool_ | np.int64] = np.bool_ if isinstance(blank, bool) else np.int64
    if not used:
        return read_only(np.empty((0, shape[1]), dtype=kind))
    if rows is None:
        return read_only(np.full(shape, blank, dtype=kind))
    return frozen_view(np.ascontiguousarray(np.atleast_2d(rows), dtype=kind))
