"""The graph of a NeuSight table: forward ops, what autograd saves of each, and the weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slackswap.profile import Profile
from slackswap.profiles.importers.builder import ProfileBuilder
from slackswap.profiles.importers.gradients import gradient_levels
from slackswap.profiles.importers.neusight_blocks import repeated_rows
from slackswap.profiles.importers.neusight_ops import Form, NodeRule, NodeSaves, operation_of
from slackswap.profiles.importers.neusight_rows import Row

_FP32 = 4
_INDEX = 8
_FLAG = 1
#: Kinds of node that run nothing.
_HOST = ("placeholder", "get_attr", "output")


@dataclass(frozen=True, slots=True)
class _Value:
    """What a name stands for: memory on the device, static memory, or nothing there."""

    storage: str | None = None
    gradient: bool = False
    static: Row | None = None
    dtype: str = ""


@dataclass(slots=True)
class RowOp:
    """A forward op with what its backward op needs."""

    row: Row
    operation: NodeRule
    kind: str
    name: str
    layer: int
    gradient: bool
    reads: list[str]
    results: list[str]
    extra: list[str] = field(default_factory=list)
    saves: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Weights:
    """Parameters that are trained and that are not, in numbers, and other static bytes."""

    trained: int = 0
    frozen: int = 0
    buffer_bytes: int = 0
    unknown: list[str] = field(default_factory=list)


class GraphBuild:
    """One pass over the model: what stands before the block, the block, what stands behind it."""

    def __init__(self, rows: Mapping[str, Row], layers: int) -> None:
        self.rows = rows
        self.layers = layers
        self.ops: list[RowOp] = []
        self.weights = Weights()
        self.guessed: set[str] = set()
        self.copied: list[str] = []
        self._builder = ProfileBuilder()
        self._nbytes: dict[str, int] = {}
        self._gradient: dict[str, bool] = {}
        self._values: dict[str, _Value] = {}
        self._items: dict[str, list[Row]] = {}
        for row in rows.values():
            if row.operation == "getitem" and row.dtype and row.inputs:
                self._items.setdefault(row.inputs[0], []).append(row)
        self.blocks = repeated_rows(rows, layers)
        self._stream_bytes = max(
            (rows[block.result].nbytes for block in self.blocks if block.result), default=0
        )
        floats = [row for row in rows.values() if row.is_float and row.backward_ns]
        self.itemsize = max((row.itemsize for row in floats), default=_FP32)

    def run(self) -> None:
        """Lay out the forward ops, then count the weights."""
        names, at, layer = list(self.rows), 0, 0
        for block in self.blocks:
            self._stretch(names[at:block.start], layer, "")
            entry = block.entry
            for _ in range(block.times):
                layer += 1
                if entry != block.entry and block.entry is not None and entry is not None:
                    self._values[block.entry] = self._values[entry]
                self._stretch(names[block.start : block.stop], layer, block.prefix, layer)
                entry = block.result
            at = block.stop
        self._stretch(names[at:], layer + 1, "")

    def profile(self, name: str, static_bytes: int) -> Profile:
        """Return the profile of what was laid out, backward in reverse."""
        for op in self.ops:
            self._builder.forward(
                op.name, op.row.forward_ns, reads=op.reads, writes=[*op.results, *op.extra],
                layer=op.layer, kind=op.kind,
            )
        read = {storage for op in self.ops for storage in op.reads}
        levels = gradient_levels(
            [(op.reads, op.results) for op in self.ops], self._nbytes,
            without_gradient={name for name in self._nbytes if not self._gradient.get(name)},
            roots=[storage for op in self.ops for storage in op.results
                   if self._gradient[storage] and storage not in read],
        )
        for op, level in zip(reversed(self.ops), reversed(levels), strict=True):
            if op.gradient:
                self._builder.backward(
                    f"{op.name}.bwd", op.row.backward_ns, reads=op.saves, layer=op.layer,
                    workspace=level.workspace, carried=level.carried, kind=op.kind,
                )
        return self._builder.profile(
            name, source="imported", provenance={}, static_bytes=static_bytes
        )

    def _stretch(
        self, names: Iterable[str], layer: int, prefix: str, number: int | None = None
    ) -> None:
        for name in names:
            row = self.rows[name]
            short = name.removeprefix(prefix) or name
            label = short if number is None else f"layer{number}.{short}"
            if row.node == "placeholder":
                if row.dtype:
                    self._values[name] = _Value(self._storage(label, row), dtype=row.dtype)
            elif row.node == "get_attr":
                self._values[name] = _Value(static=row, dtype=row.dtype)
                self._buffer(row)
            elif row.node != "output":
                self._node(row, label, layer)

    def _storage(self, label: str, row: Row, gradient: bool = False) -> str:
        self._nbytes[label] = row.nbytes
        self._gradient[label] = gradient
        return self._builder.tensor(label, row.nbytes)

    def _node(self, row: Row, label: str, layer: int) -> None:
        """Give a row's name its value, and append an op where it makes memory."""
        items = self._items.get(row.name, ())
        made = [item for item in items if item.dtype]
        if row.operation == "getitem" and row.inputs and self._is_tuple(row.inputs[0]):
            return  # given its value by what made the tuple
        operation = operation_of(row.operation)
        operands = [self._values.get(name, _Value()) for name in row.operands]
        device = [value for value in operands if value.storage is not None]
        view = self._view_of(row, operation, operands, device)
        if view is not None:
            self._values[row.name] = view
            return
        if not row.dtype and not made:
            self._values[row.name] = _Value()
            return
        gradient = row.backward_ns > 0 or any(value.gradient for value in device)
        self._count_weights(row, operation, operands)
        if operation.guessed:
            self.guessed.add(row.operation)
        op = RowOp(row, operation, self._kind(row, operation, device), label, layer, False, [], [])
        op.reads = list(dict.fromkeys(value.storage for value in device if value.storage))
        prefix = label.removesuffix(row.name) if label.endswith(row.name) else ""
        for result in [row] if row.dtype else made:
            with_gradient = gradient and result.is_float
            place = label if result is row else f"{prefix}{result.name}"
            op.results.append(self._storage(place, result, with_gradient))
            self._values[result.name] = _Value(place, with_gradient, dtype=result.dtype)
            op.gradient = op.gradient or with_gradient
        if row.operation.endswith("_") and operands and device:
            # In place: whoever reads the first operand from here on reads the result.
            self._values[row.operands[0]] = self._values[row.name]
            self.copied.append(row.name)
        if op.gradient:
            self._save(op, operands, device)
        self.ops.append(op)

    def _is_tuple(self, name: str) -> bool:
        maker = self.rows[name]
        return (
            not maker.dtype and maker.node not in _HOST
            and operation_of(maker.operation).form is Form.STORAGE
            and any(item.dtype for item in self._items.get(name, ()))
        )

    def _view_of(
        self, row: Row, operation: NodeRule, operands: list[_Value], device: list[_Value]
    ) -> _Value | None:
        """Return what a row is a view of, or None."""
        if not operands or (operands[0].storage is None and operands[0].static is None):
            return None
        first, source = operands[0], self.rows[row.operands[0]]
        if operation.form is Form.VIEW:
            # Indexed by a tensor it gathers: a copy.
            gathers = row.operation == "getitem" and len(device) > (first.storage is not None)
            return None if gathers else first
        if operation.form is Form.RESHAPE:
            return first if row.contiguous[row.inputs.index(row.operands[0])] else None
        if operation.form is Form.CAST:
            return first if row.dtype == (first.dtype or source.dtype) else None
        if operation.saves is NodeSaves.MASK and not row.backward_ns and first.gradient:
            return first  # a dropout that takes no time backward is off
        return None

    def _kind(self, row: Row, operation: NodeRule, device: list[_Value]) -> str:
        flowing = len({value.storage for value in device if value.gradient})
        if operation.kind == "residual":  # other sums are of masks, or within an activation
            return "residual" if flowing > 1 and row.nbytes == self._stream_bytes else "elementwise"
        if operation.kind == "gemm" and flowing > 1:
            return "attention"
        if row.operation == "getitem":
            return "embedding"
        return operation.kind

    def _save(self, op: RowOp, operands: list[_Value], device: list[_Value]) -> None:
        """Note what the backward op reads, making statistics and masks on the way."""
        row, saves = op.row, op.operation.saves
        chosen: list[_Value] = []
        extra: dict[str, int] = {}
        if row.operation == "getitem":
            saves = NodeSaves.INDICES
        if saves in (NodeSaves.INPUTS, NodeSaves.ALL, NodeSaves.ATTENTION):
            chosen = device
        elif saves is NodeSaves.FACTORS:
            pair = operands[-2:] if row.operation.startswith(("add", "badd")) else operands[:2]
            chosen = self._factors(row, pair)
        elif saves is NodeSaves.QUOTIENT:
            # A number above the line is no operand, one below it neither.
            above = row.operands and row.arguments.startswith(f"({row.operands[0]}")
            dividend, divisor = (*([] if above else [_Value()]), *operands, _Value())[:2]
            chosen = ([divisor] if dividend.gradient else []) + (
                [dividend, divisor] if divisor.gradient else []
            )
        elif saves is NodeSaves.INDICES:
            chosen = [value for value in device if not _is_float(value.dtype)]
        elif saves in (NodeSaves.STATISTICS, NodeSaves.INPUT_AND_INDICES):
            chosen = device[:1]
            if saves is NodeSaves.STATISTICS:
                batch = "batch" in row.operation and len(row.shape) > 1
                count = row.shape[1] if batch else row.elements // max(1, (row.shape or (1,))[-1])
                extra["statistics"] = 2 * _FP32 * count
            else:
                extra["indices"] = _INDEX * row.elements
        elif saves is NodeSaves.MASK:
            extra["mask"] = _FLAG * row.elements
        if saves is NodeSaves.ATTENTION:
            extra["lse"] = _FP32 * (row.elements // max(1, (row.shape or (1,))[-1]))
        saved = [value.storage for value in chosen if value.storage is not None]
        if saves in (NodeSaves.RESULT, NodeSaves.ALL, NodeSaves.ATTENTION):
            saved += op.results
        if not row.dtype:  # of several results, backward needs those that are indices
            saved += [name for name in op.results if not self._gradient[name]]
        for suffix, nbytes in extra.items():
            label = self._builder.tensor(f"{op.name}.{suffix}", nbytes)
            op.extra.append(label)
            saved.append(label)
        op.saves = list(dict.fromkeys(saved))

    def _factors(self, row: Row, pair: list[_Value]) -> list[_Value]:
        """Return the factors of a product that autograd saves."""
        if len(pair) < 2:
            # With a number nothing is saved; with the weight of a module, the input if it learns.
            return pair if row.node == "call_module" and row.accumulates else []
        first, second = pair
        learns = [value.gradient or (value.static is not None and row.accumulates)
                  for value in pair]
        return [value for value, partner in ((first, learns[1]), (second, learns[0])) if partner]

    def _buffer(self, row: Row) -> None:
        """Count static memory: it is trained if an op that reads it gathers gradients for it."""
        readers = [other for other in self.rows.values() if row.name in other.inputs]
        if row.is_float and any(reader.accumulates for reader in readers):
            self.weights.trained += row.elements
        elif row.dtype:
            self.weights.buffer_bytes += row.nbytes

    def _count_weights(self, row: Row, operation: NodeRule, operands: list[_Value]) -> None:
        """Count the weights inside a module, by the shapes around it."""
        if row.node != "call_module" or not row.inputs:
            return
        source, width = self.rows[row.inputs[0]], (row.shape or (1,))[-1]
        count = 0
        if operation.kind == "gemm":
            inner = (source.shape or (1,))[-1]
            # The head's table is the embedding's, which is counted there.
            count = 0 if width == self.vocabulary else inner * width + width
        elif operation.kind == "norm":
            count = 2 * (row.shape[1] if "batch" in row.operation and len(row.shape) > 1 else width)
        elif row.operation.startswith("embedding"):
            tokens = self._reads_placeholder(source)
            count = width * (self.vocabulary if tokens and self.vocabulary else
                             (source.shape or (1,))[-1])
        elif row.accumulates:
            self.weights.unknown.append(row.operation)
        if row.accumulates:
            self.weights.trained += count
        else:
            self.weights.frozen += count

    @property
    def vocabulary(self) -> int:
        """Width of the widest result that the model gives, where it has an embedding; else 0."""
        outputs = [row for row in self.rows.values() if row.node == "output"]
        given = [self.rows[name] for row in outputs for name in row.inputs]
        embeds = any(row.operation.startswith("embedding") for row in self.rows.values())
        widest = max((row.shape[-1] for row in given if row.is_float and row.shape), default=0)
        return widest if embeds else 0

    def _reads_placeholder(self, row: Row) -> bool:
        while row.inputs and operation_of(row.operation).form is not Form.STORAGE:
            row = self.rows[row.inputs[0]]
        return row.node == "placeholder"


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "double", "half"))
