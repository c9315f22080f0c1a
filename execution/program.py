"""Compile a plan over the captured joint graph into straight-line steps.

``profile.forward[i]`` is ``lowered.forward[i]``, ``profile.backward[j]`` is ``lowered.nodes[j]``,
and a tensor of the profile is the storage of its name. So a plan says of every node of the graph
in which steps it runs, and a walk over the steps says where each value has its last use.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from torch import fx

from slackswap.execution.errors import DifferentModel
from slackswap.execution.timetable import Timetable
from slackswap.profile import Action, Profile
from slackswap.profiles.capture.grouping import is_sum
from slackswap.profiles.capture.joint import is_backward
from slackswap.profiles.capture.kinds import is_allocation, is_random, reads_only_shape
from slackswap.profiles.capture.lowered import LoweredGraph, Operation, tensors_of


class Mode(Enum):
    """How an instruction runs its node."""

    PLAIN = auto()
    #: Note the state of the random-number generator first: the node will run again.
    NOTE_STATE = auto()
    #: Run with the noted state, and put the present one back afterwards.
    WITH_STATE = auto()
    #: Let a sum write into its first operand, as the autograd engine does.
    IN_PLACE = auto()
    #: Copy the loss to memory of its own: its storage may be large, and dies in the forward pass.
    RESULT = auto()


@dataclass(slots=True, eq=False)
class Instruction:
    """One node to run.

    Attributes
    ----------
    node : fx.Node
        What to run; for `Mode.RESULT` what to copy.
    mode : Mode
        How.
    ghosts : tuple of fx.Node
        Operands that are gone: only their shape and number format is asked.
    drops : list of fx.Node
        Values that have their last use here.
    """

    node: fx.Node
    mode: Mode = Mode.PLAIN
    ghosts: tuple[fx.Node, ...] = ()
    drops: list[fx.Node] = field(default_factory=list)

    @property
    def reads(self) -> Iterable[fx.Node]:
        """Values that it needs."""
        if self.mode is Mode.RESULT:
            return (self.node,)
        return (node for node in self.node.all_input_nodes if node not in self.ghosts)


Instructions = list[Instruction]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A plan as instructions.

    Attributes
    ----------
    lowered : LoweredGraph
        What it was compiled from.
    slots : mapping from fx.Node to int
        Place of each value in an iteration's environment.
    forward, steps : tuple of list of Instruction
        By forward op, and by backward step.
    turn, end : list of Instruction
        What the new buffer values need after the last forward op, and the gradients after the
        last step.
    drops_after_updates : tuple of fx.Node
        Values that are no longer needed once the buffers have taken on their new values.
    nodes_of : mapping from int to tuple of fx.Node
        Values that lie in a tensor of the profile.
    replayed : int
        Random operations whose generator state is kept.
    remade_bytes : int
        Most bytes of results that an op that runs again makes although they are there already, or
        are not counted. They are dropped at its end.
    """

    lowered: LoweredGraph
    slots: dict[fx.Node, int]
    forward: tuple[Instructions, ...]
    turn: Instructions
    steps: tuple[Instructions, ...]
    end: Instructions
    drops_after_updates: tuple[fx.Node, ...]
    nodes_of: dict[int, tuple[fx.Node, ...]]
    replayed: int
    remade_bytes: int


def compile_program(lowered: LoweredGraph, timetable: Timetable) -> Program:
    """Compile a plan.

    Parameters
    ----------
    lowered : LoweredGraph
        The captured graph.
    timetable : Timetable
        The plan, on a profile of this graph.

    Raises
    ------
    DifferentModel
        When the profile is not of this graph; the first difference is named.
    """
    check_profile(lowered, timetable.problem.profile)
    return _Compiler(lowered, timetable).run()


def check_profile(lowered: LoweredGraph, profile: Profile) -> None:
    """Check that a profile has the ops and tensors of a graph.

    Raises
    ------
    DifferentModel
        Naming the first difference.
    """
    pairs = (
        ("forward op", [op.name for op in profile.forward], [op.name for op in lowered.forward]),
        ("backward op", [op.name for op in profile.backward], [op.name for op in lowered.nodes]),
    )
    for what, theirs, ours in pairs:
        for place, (their, our) in enumerate(zip(theirs, ours, strict=False)):
            if their != our:
                raise _different(f"{what} {place} is {their!r} there and {our!r} here", profile)
        if len(theirs) != len(ours):
            raise _different(f"it has {len(theirs)} {what}s, the model {len(ours)}", profile)
    sizes = {storage.name: storage.nbytes for storage in lowered.storages}
    for tensor in profile.tensors:
        if sizes.get(tensor.name) != tensor.nbytes:
            raise _different(
                f"tensor {tensor.name!r} has {tensor.nbytes} bytes there and "
                f"{sizes.get(tensor.name, 'none')} here", profile,
            )


def _different(what: str, profile: Profile) -> DifferentModel:
    return DifferentModel(
        f"the profile is of another model: {what}", where=f"profile {profile.name!r}",
        fix="capture the model again, with the same inputs",
    )


class _Compiler:
    def __init__(self, lowered: LoweredGraph, timetable: Timetable) -> None:
        self._lowered, self._table = lowered, timetable
        joint = lowered.joint
        index_of = timetable.problem.profile.index_of
        nodes_of: dict[int, list[fx.Node]] = {}
        for node, storage in lowered.storage_of.items():
            tensor = index_of.get(lowered.storages[storage].name)
            if tensor is not None:
                nodes_of.setdefault(tensor, []).append(node)
        self._nodes_of = {tensor: tuple(nodes) for tensor, nodes in nodes_of.items()}
        self._tensor_of = {node: t for t, nodes in self._nodes_of.items() for node in nodes}
        self._operations = {op.node: op for op in (*lowered.forward, *lowered.backward)}
        self._fixed = {n for n in joint.module.graph.nodes if n.op in ("placeholder", "get_attr")}
        self._new_values = [value for _, value in joint.updates]
        pinned = (*self._new_values, *joint.gradients)
        self._pinned = {self._tensor_of[node] for node in pinned if node in self._tensor_of}
        self._live = set(self._fixed)

    def run(self) -> Program:
        table, lowered = self._table, self._lowered
        schedule, graph = table.schedule, table.problem.profile.graph
        again = {step.forward for step in schedule.steps if step.forward is not None}
        loss, loss_made_by = lowered.joint.loss, self._maker(lowered.joint.loss)
        replayed = 0
        forward: list[Instructions] = []
        for i, op in enumerate(lowered.forward):
            noted = i in again and is_random(op.node.target)
            replayed += noted
            out: Instructions = []
            self._emit(op.node, out, Mode.NOTE_STATE if noted else Mode.PLAIN)
            if op.node is loss_made_by:
                self._need(loss, out)
                out.append(Instruction(loss, Mode.RESULT))
            forward.append(out)
            for t in graph.last_uses[i].tolist():
                if table.actions[t] is Action.RECOMPUTE or t not in schedule.first_need:
                    self._forget(t)
        turn: Instructions = []
        for node in self._new_values:
            self._need(node, turn)
        steps: list[Instructions] = []
        for k, step in enumerate(schedule.steps):
            out = []
            if step.forward is None:
                for backward_op in lowered.nodes[step.backward].operations:
                    mode = Mode.IN_PLACE if self._sums_in_place(backward_op) else Mode.PLAIN
                    self._emit(backward_op.node, out, mode)
            else:
                node = lowered.forward[step.forward].node
                mode = Mode.WITH_STATE if is_random(node.target) else Mode.PLAIN
                self._emit(node, out, mode, wanted=step.writes)
            steps.append(out)
            for t in schedule.frees[k]:
                self._forget(t)
        end: Instructions = []
        for node in lowered.joint.gradients:
            self._need(node, end)
        return Program(
            lowered=lowered,
            slots={node: place for place, node in enumerate(lowered.joint.module.graph.nodes)},
            forward=tuple(forward),
            turn=turn,
            steps=tuple(steps),
            end=end,
            drops_after_updates=self._place_drops(forward, turn, steps, end),
            nodes_of=self._nodes_of,
            replayed=replayed,
            remade_bytes=max(
                (
                    self._remade_bytes(lowered.forward[step.forward], step.writes)
                    for step in schedule.steps if step.forward is not None
                ),
                default=0,
            ),
        )

    # ---------------------------------------------------------------- what runs

    def _maker(self, node: fx.Node) -> fx.Node:
        """Return the operation whose storage a value lies in."""
        while node not in self._operations and node.all_input_nodes:
            node = node.all_input_nodes[0]
        return node

    def _need(self, node: fx.Node, out: Instructions) -> None:
        """Make a view, an allocation or an element of a result, if it is not there."""
        if node in self._live:
            return
        if node in self._operations:
            raise DifferentModel(
                f"{self._operations[node].name} is read after it was dropped: the profile does "
                "not say so", where="compile", fix="capture the model again",
            )
        self._emit(node, out)

    def _emit(
        self, node: fx.Node, out: Instructions, mode: Mode = Mode.PLAIN,
        *, wanted: Collection[int] | None = None,
    ) -> None:
        """Run a node; of an op that runs again, only the results in `wanted` are unpacked."""
        only_shape = reads_only_shape(node.target) or is_allocation(node.target)
        ghosts = []
        for source in node.all_input_nodes:
            if source in self._fixed:
                continue
            # The cost model lets an operand die before an op that only asks for its shape.
            if only_shape and not is_allocation(source.target):
                ghosts.append(source)
            else:
                self._need(source, out)
        out.append(Instruction(node, mode, tuple(ghosts)))
        self._live.add(node)
        for source in node.all_input_nodes:
            # What fills an allocation takes it over; the next one allocates again.
            if fills_allocation(node, source):
                self._live.discard(source)
        if isinstance(node.meta.get("val"), (tuple, list)):
            # Unpacked at once: the tuple would keep every result alive.
            for element in node.users:
                unwanted = wanted is not None and self._tensor_of.get(element, -1) not in (
                    -1, *wanted
                )
                if element.target is operator.getitem and element.users and not unwanted:
                    out.append(Instruction(element))
                    self._live.add(element)
            self._live.discard(node)

    def _remade_bytes(self, op: Operation, wanted: Collection[int]) -> int:
        names = {self._table.problem.profile.tensors[t].name for t in wanted}
        return sum(
            tensor.untyped_storage().nbytes()
            for tensor, storage in zip(tensors_of(op.node), op.results, strict=True)
            if storage is None or self._lowered.storages[storage].name not in names
        )

    def _forget(self, tensor: int) -> None:
        if tensor not in self._pinned:
            self._live.difference_update(self._nodes_of.get(tensor, ()))

    def _sums_in_place(self, op: Operation) -> bool:
        if not is_sum(op.node) or op.writes:
            return False
        return self._lowered.storage_of.get(op.node) is not None or self._is_first_part(op.node)

    def _is_first_part(self, total: fx.Node) -> bool:
        """Whether a sum may go into its first operand: a part of a parameter's gradient."""
        node = total.args[0]
        assert isinstance(node, fx.Node)
        if node in self._lowered.storage_of or node.meta["val"].shape != total.meta["val"].shape:
            return False
        size = tensors_of(total)[0].untyped_storage().nbytes()
        while node.op == "call_function" and is_backward(node) and len(node.users) == 1:
            tensors = tensors_of(node)
            if len(tensors) != 1 or tensors[0].untyped_storage().nbytes() != size:
                return False
            if node in self._operations:
                return True
            source = node.args[0]
            assert isinstance(source, fx.Node)
            node = source
        return False

    # ---------------------------------------------------------------- last uses

    def _place_drops(
        self, forward: list[Instructions], turn: Instructions, steps: list[Instructions],
        end: Instructions,
    ) -> tuple[fx.Node, ...]:
        """Give every value a drop at its last use, each time it is made."""
        last: dict[fx.Node, Instruction] = {}
        for out in (*forward, turn):
            self._note_uses(out, last)
        updated: dict[fx.Node, None] = {}
        for node in self._new_values:
            if last.pop(node, None) is not None:
                updated[node] = None
        for out in (*steps, end):
            for instruction in out:
                for node in instruction.reads:
                    updated.pop(node, None)  # has a later use
            self._note_uses(out, last)
        for node, instruction in last.items():
            if node not in self._lowered.joint.gradients:
                instruction.drops.append(node)
        return tuple(updated)

    def _note_uses(self, out: Instructions, last: dict[fx.Node, Instruction]) -> None:
        for instruction in out:
            if instruction.mode is not Mode.RESULT:
                if instruction.node in last:  # a new life begins: end the old one
                    last[instruction.node].drops.append(instruction.node)
                last[instruction.node] = instruction
            for node in instruction.reads:
                if node not in self._fixed:
                    last[node] = instruction


def fills_allocation(node: fx.Node, source: fx.Node) -> bool:
    """Whether a node is the one that gives an allocation its values."""
    return (
        source.op == "call_function" and is_allocation(source.target) and len(source.users) == 1
    )
