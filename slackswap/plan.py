"""A plan: what happens to each saved tensor, and when its copies may start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slackswap import files
from slackswap.display import render
from slackswap.errors import InvalidPlan
from slackswap.frozen import FrozenDict, frozen, set_fields, thawed
from slackswap.profile import Action
from slackswap.quantities import as_integer, as_items, as_mapping, as_text, shown

SCHEMA = "slackswap.plan/1"


@dataclass(frozen=True, slots=True)
class PlannerInfo:
    """Who made a plan: name, version, parameters and seed of the planner."""

    name: str
    version: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            set_fields(self, seed=as_integer(self.seed, "planner: seed", InvalidPlan))
        given = as_mapping(self.parameters, "planner: parameters", InvalidPlan)
        set_fields(self, parameters=frozen(given))


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions by tensor name, with optional gates and barriers on transfers.

    Attributes
    ----------
    actions : mapping of str to Action
        Without an entry a saved tensor is kept, and an intermediate is dropped after its last
        forward use. ``keep`` or ``swap`` on an intermediate stores it for later closures.
    offload_gates : mapping of str to int
        Forward op at whose end a swapped tensor joins the offload queue, if later than the op
        that writes it.
    offload_barriers : tuple of int
        Forward ops after which compute waits for the offload queue.
    prefetch_gates : mapping of str to int
        Backward op that compute must have reached before a tensor's prefetch starts.
    prefetch_barriers : tuple of int
        Backward ops after which compute waits for the running prefetch.
    planner : PlannerInfo or None
        Provenance.
    profile_sha256 : str or None
        Identity of the profile the plan was made for; checked when present.
    """

    actions: Mapping[str, Action] = field(default_factory=dict)
    offload_gates: Mapping[str, int] = field(default_factory=dict)
    offload_barriers: tuple[int, ...] = ()
    prefetch_gates: Mapping[str, int] = field(default_factory=dict)
    prefetch_barriers: tuple[int, ...] = ()
    planner: PlannerInfo | None = None
    profile_sha256: str | None = None

    def __post_init__(self) -> None:
        actions = as_mapping(self.actions, "actions", InvalidPlan)
        try:
            # Looking an action up costs more than all the rest, and planners name many tensors.
            chosen = FrozenDict(
                (name, action if type(action) is Action else Action(action))
                for name, action in actions.items()
            )
        except (TypeError, ValueError) as error:
            raise InvalidPlan(str(error), where="actions",
                              fix="use keep, swap or recompute") from error
        if self.planner is not None and not isinstance(self.planner, PlannerInfo):
            raise InvalidPlan(f"{shown(self.planner)} is not a PlannerInfo", where="planner",
                              fix="leave it out: solve() adds it")
        if self.profile_sha256 is not None:
            as_text(self.profile_sha256, "profile_sha256", InvalidPlan)
        set_fields(
            self,
            actions=chosen,
            offload_gates=_gates(self.offload_gates, "offload_gates"),
            prefetch_gates=_gates(self.prefetch_gates, "prefetch_gates"),
            offload_barriers=_barriers(self.offload_barriers, "offload_barriers"),
            prefetch_barriers=_barriers(self.prefetch_barriers, "prefetch_barriers"),
        )

    @property
    def has_order(self) -> bool:
        """Whether the plan constrains transfers by gates or barriers."""
        return bool(
            self.offload_gates
            or self.prefetch_gates
            or self.offload_barriers
            or self.prefetch_barriers
        )

    def with_planner(self, planner: PlannerInfo) -> Plan:
        """Return a copy that says who made it."""
        return replace(self, planner=planner)

    def with_actions(self, changes: Mapping[str, Action]) -> Plan:
        """Return a copy with some actions changed."""
        return replace(self, actions={**self.actions, **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the schema."""
        planner = self.planner
        return {
            "schema": SCHEMA,
            "actions": {name: str(action) for name, action in self.actions.items()},
            "offload_gates": dict(self.offload_gates),
            "offload_barriers": list(self.offload_barriers),
            "prefetch_gates": dict(self.prefetch_gates),
            "prefetch_barriers": list(self.prefetch_barriers),
            "planner": None
            if planner is None
            else {
                "name": planner.name,
                "version": planner.version,
                "parameters": thawed(planner.parameters),
                "seed": planner.seed,
            },
            "profile_sha256": self.profile_sha256,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Plan:
        """Build a plan from the JSON object of the schema.

        Raises
        ------
        InvalidPlan
            Naming the field and what would fix it.
        """
        from slackswap.schemas.documents import PlanDocument, validated

        fields = validated(PlanDocument, document, InvalidPlan)
        planner = fields.planner
        return cls(
            actions={name: Action(action) for name, action in fields.actions.items()},
            offload_gates=fields.offload_gates,
            offload_barriers=tuple(fields.offload_barriers),
            prefetch_gates=fields.prefetch_gates,
            prefetch_barriers=tuple(fields.prefetch_barriers),
            planner=None if planner is None else PlannerInfo(**planner.model_dump()),
            profile_sha256=fields.profile_sha256,
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan from a JSON file, plain or gzip-compressed."""
        return files.load_document(path, cls.from_dict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON, whole or not at all."""
        files.write_json(path, self.to_dict())

    def _repr_html_(self) -> str:
        return render(self)


def _index(value: object, where: str) -> int:
    return as_integer(value, where, InvalidPlan,
                      fix="write the index of a forward or backward op")


def _gates(gates: object, where: str) -> Mapping[str, int]:
    entries = as_mapping(gates, where, InvalidPlan)
    return FrozenDict((name, _index(op, f"{where}[{name!r}]")) for name, op in entries.items())


def _barriers(values: object, where: str) -> tuple[int, ...]:
    return tuple(sorted({_index(value, where) for value in as_items(values, where, InvalidPlan)}))
