"""Turn instructions into Python functions: the cost of interpreting a plan is theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from slackswap.execution.program import Instruction, Instructions, Mode, fills_allocation
from slackswap.profiles.capture.kinds import is_allocation, reads_only_shape

aten = torch.ops.aten

#: Runs the instructions of one step on an environment and the noted random states.
StepFunction = Callable[[list[Any], dict[int, torch.Tensor]], None]

#: In-place forms that are not called like the functional one.
_IRREGULAR_FILLS = {
    "aten::bernoulli.p": aten.bernoulli_.float,
    "aten::normal_functional": aten.normal_.default,
}


def emit_step(
    instructions: Instructions, slots: Mapping[fx.Node, int], device: torch.device
) -> StepFunction:
    """Return a function that runs instructions one after the other.

    Parameters
    ----------
    instructions : list of Instruction
        Of one forward op or backward step.
    slots : mapping from fx.Node to int
        Place of each value in the environment; the loss goes to the place after the last.
    device : torch.device
        Where the model runs: whose random-number generator is noted, and where a result lies
        whose shape comes from an operand that is gone.
    """
    writer = _Writer(slots, device)
    for instruction in instructions:
        writer.add(instruction)
    return writer.function()


def in_place_fill(target: Any) -> Any:
    """Return the in-place form of a fill such as ``bernoulli.p``."""
    irregular = _IRREGULAR_FILLS.get(target.name())
    if irregular is not None:
        return irregular
    packet = getattr(aten, f"{target.overloadpacket.__name__}_")
    return getattr(packet, target._overloadname)


class _Writer:
    def __init__(self, slots: Mapping[fx.Node, int], device: torch.device) -> None:
        self._slots, self._device = slots, device
        self._constants: list[Any] = []
        self._lines: list[str] = []
        cuda = device.type == "cuda"
        self._names = {
            "c": self._constants,
            "get": (lambda: torch.cuda.get_rng_state(device)) if cuda else torch.get_rng_state,
            "put": (lambda state: torch.cuda.set_rng_state(state, device))
            if cuda else torch.set_rng_state,
        }

    def add(self, instruction: Instruction) -> None:
        slot = self._slots[instruction.node]
        if instruction.mode is Mode.RESULT:
            self._lines.append(f"e[{len(self._slots)}] = e[{slot}].clone()")
        else:
            if instruction.mode is Mode.NOTE_STATE:
                self._lines.append(f"r[{slot}] = get()")
            if instruction.mode is Mode.WITH_STATE:
                self._lines += ["now = get()", f"put(r[{slot}])"]
            self._lines.append(f"e[{slot}] = {self._call(instruction)}")
            if instruction.mode is Mode.WITH_STATE:
                self._lines.append("put(now)")
        if instruction.drops:
            places = " = ".join(f"e[{self._slots[node]}]" for node in instruction.drops)
            self._lines.append(f"{places} = None")

    def function(self) -> StepFunction:
        if not self._lines:
            return lambda e, r: None
        body = "\n ".join(self._lines)
        exec(f"def step(e, r):\n {body}", self._names)
        function: StepFunction = self._names["step"]  # type: ignore[assignment]
        return function

    def _call(self, instruction: Instruction) -> str:
        node, ghosts = instruction.node, instruction.ghosts
        target: Any = node.target
        args, kwargs = list(node.args), dict(node.kwargs)
        first = args[0] if args else None
        words: list[str] = []
        if instruction.mode is Mode.IN_PLACE:
            target = aten.add_.Tensor
        elif isinstance(first, fx.Node) and _is_fill(node):
            if first in ghosts:
                # The functional form would draw where the ghost is; allocate as it does.
                words.append(
                    f"{self._constant(torch.empty_like)}({self._source(first, ghosts)}, "
                    f"device={self._constant(self._device)})"
                )
                args, target = args[1:], in_place_fill(target)
            elif fills_allocation(node, first):
                target = in_place_fill(target)
        elif ghosts and kwargs.get("device") is None:
            kwargs["device"] = self._device
        words += [self._source(value, ghosts) for value in args]
        words += [f"{key}={self._source(value, ghosts)}" for key, value in kwargs.items()]
        return f"{self._constant(target)}({', '.join(words)})"

    def _constant(self, value: Any) -> str:
        self._constants.append(value)
        return f"c[{len(self._constants) - 1}]"

    def _source(self, value: Any, ghosts: tuple[fx.Node, ...]) -> str:
        if isinstance(value, fx.Node):
            if value in ghosts:
                fake = value.meta["val"]
                return self._constant(
                    torch.empty_strided(
                        tuple(fake.shape), tuple(fake.stride()), dtype=fake.dtype, device="meta"
                    )
                )
            return f"e[{self._slots[value]}]"
        if isinstance(value, (list, tuple)):
            inner = "".join(f"{self._source(item, ghosts)}, " for item in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner})"
        if isinstance(value, (bool, int, str)) or value is None:
            return repr(value)
        return self._constant(value)


def _is_fill(node: fx.Node) -> bool:
    """Whether a node overwrites its first operand, which its target asks for its shape only."""
    name = str(getattr(node.target, "__name__", ""))
    return (
        reads_only_shape(node.target)
        and not is_allocation(node.target)
        and "_like" not in name
        and not name.startswith("new_")
    )
