"""Rows of a NeuSight operator table: one `torch.fx` node each, checked as it is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import NoReturn

from slackswap.profiles.importers.reading import CsvRow, Place, csv_rows, excerpt, parse_decimal

COLUMNS = (
    "op", "target", "_input_nodes", "_args", "_kwargs", "meta", "input_shapes",
    "input_contiguous", "fw_latency", "bw_latency", "acc_latency", "output_shape", "dtype", "Name",
)
NODES = ("placeholder", "get_attr", "call_module", "call_function", "call_method", "output")

_ITEMSIZE = {
    **dict.fromkeys(("float64", "double", "int64", "long", "complex64"), 8),
    **dict.fromkeys(("float32", "float", "int32", "int"), 4),
    **dict.fromkeys(("float16", "half", "bfloat16", "int16", "short"), 2),
    **dict.fromkeys(("int8", "uint8", "bool"), 1),
}
_FLOATS = frozenset({"float64", "double", "float32", "float", "float16", "half", "bfloat16"})
_MILLISECOND = 10**6
_LONGEST_MS = 10**9
#: Shapes beyond this are no tensors of any device.
_LARGEST = 2**50

_Fail = Callable[[str, str, str], NoReturn]

_NAME = re.compile(r"[A-Za-z_]\w*")
_INPUTS = re.compile(r"\{((\w+: None)(, \w+: None)*)?\}")
_SHAPE = re.compile(r"\(([0-9]+, ?)*([0-9]+,?)?\)|\[([0-9]+(, ?[0-9]+)*)?\]|torch\.Size\(\[.*\]\)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_CLASS = re.compile(r"\('([^']*)', <class '([^']*)'>\)")
_CALLED = re.compile(r"(?:built-in (?:function|method)|function|class|method) '?([\w.]+)")
_LONG_DECIMALS = re.compile(r"(\.[0-9]{18})[0-9]+")


@dataclass(frozen=True, slots=True)
class Row:
    """One node of the graph.

    Attributes
    ----------
    place : Place
        Its line.
    node : str
        One of `NODES`.
    name : str
        Name of its result.
    target : str
        What it calls: a module's path, a method, or a function's name.
    operation : str
        The module's class, the method or the function, in lower case without its package.
    modules : tuple of str
        Paths of the modules that it runs in, outermost first.
    inputs : tuple of str
        Names of the rows it reads, each once.
    operands : tuple of str
        The same in the order of its arguments, as often as they occur.
    arguments : str
        Arguments as written.
    contiguous : tuple of bool
        Of each input, whether it is.
    shape : tuple of int
        Of the result.
    dtype : str
        Of the result, without ``torch.``; empty when it is no tensor.
    forward_ns, backward_ns : int
        Times; backward with the accumulation of weight gradients.
    accumulates : bool
        Whether it has weights that are trained.
    """

    place: Place
    node: str
    name: str
    target: str
    operation: str
    modules: tuple[str, ...]
    inputs: tuple[str, ...]
    operands: tuple[str, ...]
    arguments: str
    contiguous: tuple[bool, ...]
    shape: tuple[int, ...]
    dtype: str
    forward_ns: int
    backward_ns: int
    accumulates: bool

    @property
    def elements(self) -> int:
        """Numbers in the result."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one of them."""
        return _ITEMSIZE[self.dtype]

    @property
    def nbytes(self) -> int:
        """Bytes of the result."""
        return self.elements * self.itemsize

    @property
    def is_float(self) -> bool:
        """Whether the result can have a gradient."""
        return self.dtype in _FLOATS

    def fail(self, column: str, what: str, fix: str) -> NoReturn:
        """Raise an `InvalidFile` at a cell of this row."""
        replace(self.place, column=column).fail(what, fix)


def read_rows(text: str, file: str) -> dict[str, Row]:
    """Return the rows of a table by name, in execution order.

    Raises
    ------
    InvalidFile
        Naming line and column of what is malformed: also of an input that no earlier row makes,
        and of one whose shape is not that of the row that makes it.
    """
    rows: dict[str, Row] = {}
    for cells in csv_rows(text, file, COLUMNS):
        row = _row(cells)
        if row.name in rows:
            row.fail("Name", f"{row.name} stands there twice, first on line "
                     f"{rows[row.name].place.line}", "give each node a name of its own")
        unknown = next((name for name in row.inputs if name not in rows), None)
        if unknown is not None:
            row.fail("_input_nodes", f"reads {unknown[:60]!r}, which no row before it makes",
                     "list the nodes in execution order, none left out")
        _check_shapes(row, cells, rows)
        rows[row.name] = row
    if not rows:
        Place(file, 1).fail("the file holds no node", "check that it is the file you meant")
    return rows


def _row(cells: CsvRow) -> Row:
    place, node = cells.place, cells.cells["op"]

    def fail(column: str, what: str, fix: str) -> NoReturn:
        replace(place, column=column).fail(what, fix)

    if node not in NODES:
        fail("op", f"{excerpt(node)} is no kind of node", f"write one of {', '.join(NODES)}")
    name, target = cells.cells["Name"], cells.cells["target"]
    if not _NAME.fullmatch(name):
        fail("Name", f"{excerpt(name)} is not a name", "write the name of the torch.fx node")
    if not target:
        fail("target", "is empty", "write what the node calls")
    if not _INPUTS.fullmatch(cells.cells["_input_nodes"]):
        fail("_input_nodes", f"{excerpt(cells.cells['_input_nodes'])} does not list nodes",
             "write {name: None, other: None}")
    inputs = tuple(item.partition(":")[0].strip()
                   for item in cells.cells["_input_nodes"][1:-1].split(",") if item)
    arguments = cells.cells["_args"] + cells.cells["_kwargs"]
    operands = tuple(
        word for word in _NAME.findall(_QUOTED.sub("", arguments)) if word in inputs
    )
    if set(operands) != set(inputs):
        missing = next(word for word in inputs if word not in operands)
        fail("_args", f"does not hold {missing!r}, which _input_nodes lists",
             "let both tell the same nodes")
    dtype = cells.cells["dtype"].removeprefix("torch.")
    if dtype and dtype not in _ITEMSIZE:
        fail("dtype", f"{excerpt(cells.cells['dtype'])} is not known",
             f"write torch.{', torch.'.join(_ITEMSIZE)}, or nothing for what is no tensor")
    classes = _CLASS.findall(cells.cells["meta"])
    return Row(
        place=place,
        node=node,
        name=name,
        target=target,
        operation=_operation(node, target, classes),
        modules=tuple(path for path, _ in classes),
        inputs=inputs,
        operands=operands,
        arguments=arguments,
        contiguous=_flags(cells, len(inputs), fail),
        shape=_shape(cells, fail),
        dtype=dtype,
        forward_ns=round(_ns(cells, "fw_latency")),
        backward_ns=round(_ns(cells, "bw_latency", "acc_latency")),
        accumulates=_ns(cells, "acc_latency") > 0,
    )


def _operation(node: str, target: str, classes: list[tuple[str, str]]) -> str:
    if node == "call_module":
        known = dict(classes).get(target, target)
        return known.rpartition(".")[2].lower()
    called = _CALLED.search(target) if node == "call_function" else None
    return (called[1] if called else target).rpartition(".")[2].lower()


def _flags(cells: CsvRow, count: int, fail: _Fail) -> tuple[bool, ...]:
    words = re.findall(r"\w+", cells.cells["input_contiguous"])
    if len(words) != count or not set(words) <= {"True", "False"}:
        fail("input_contiguous",
             f"{excerpt(cells.cells['input_contiguous'])} is not one truth value an input",
             f"write {count} of True or False in brackets")
    return tuple(word == "True" for word in words)


def _shape(cells: CsvRow, fail: _Fail) -> tuple[int, ...]:
    text = cells.cells["output_shape"]
    digits = [item[:18] for item in re.findall("[0-9]+", text)]
    shape = tuple(map(int, digits))
    if not _SHAPE.fullmatch(text) or prod(shape) > _LARGEST:
        fail("output_shape", f"{excerpt(text)} is no shape of a tensor", "write (8, 512)")
    return shape


def _check_shapes(row: Row, cells: CsvRow, rows: dict[str, Row]) -> None:
    """Compare the shapes that a row reads with those that are made, which catches most slips."""
    text = cells.cells["input_shapes"].replace("(", "[").replace(")", "]")
    items = re.findall(r"\[([0-9, ]*)\]", text) if text not in ("", "[]") else []
    if [re.findall("[0-9]+", item) for item in items] != [
        [str(size) for size in rows[name].shape] for name in row.inputs
    ]:
        row.fail("input_shapes", f"{excerpt(cells.cells['input_shapes'])} are not the shapes of "
                 f"{', '.join(row.inputs)[:80] or 'no input'}",
                 "let it be the output_shape of each input")


def _ns(cells: CsvRow, *columns: str) -> Fraction:
    """Return the sum of some times in nanoseconds, exactly."""
    total = Fraction(0)
    for column in columns:
        # The shortest text of a double can have 20 decimals; 18 of a millisecond are enough.
        text = _LONG_DECIMALS.sub(r"\1", cells.cells[column])
        try:
            total += parse_decimal(text)
        except ValueError as error:
            replace(cells.place, column=column).fail(
                f"is {error}", "write milliseconds as a finite decimal number"
            )
    if total > _LONGEST_MS:
        replace(cells.place, column=columns[0]).fail(
            f"is {float(total):g} ms, beyond any step", "check the unit"
        )
    return total * _MILLISECOND
