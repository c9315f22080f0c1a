"""Layer graphs of the PipeDream profiler: ``graph.txt``.

One line a node, ``node3 -- ReLU(inplace) -- forward_compute_time=.., backward_compute_time=..,
activation_size=.., parameter_size=..`` (milliseconds and bytes), then one indented line an edge,
``node2 -- node3``. Layers and times are measured; what backward needs of each layer is inferred
from its kind.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from slackswap.errors import SlackSwapError
from slackswap.profile import Profile
from slackswap.profiles.importers.builder import ProfileBuilder
from slackswap.profiles.importers.gradients import gradient_levels
from slackswap.profiles.importers.pipedream_layers import LayerKind, Saves, layer_kind
from slackswap.profiles.importers.reading import Place, scaled

_METADATA = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_INDEX_BYTES = 8
_MASK_BYTES = 1


@dataclass(slots=True)
class _Node:
    """A line of the file; `reads` are the nodes it has edges from, then the results it reads."""

    name: str
    description: str
    place: Place
    forward_ns: int
    backward_ns: int
    sizes: tuple[int, ...]
    parameter_bytes: int
    kind: LayerKind
    reads: list[str] = field(default_factory=list)

    @property
    def results(self) -> dict[str, int]:
        """Sizes of its results; several are numbered."""
        if len(self.sizes) == 1:
            return {self.name: self.sizes[0]}
        return {f"{self.name}:{item}": nbytes for item, nbytes in enumerate(self.sizes)}

    @property
    def nbytes(self) -> int:
        """Bytes of all results."""
        return sum(self.sizes)


@dataclass(slots=True)
class _Op:
    """A forward op: a layer with those that work in place on its result."""

    nodes: list[_Node]
    reads: list[str]
    writes: list[str]

    @property
    def kind(self) -> str:
        """A sum taken in place makes the whole op a join of branches."""
        kinds = [node.kind.kind for node in self.nodes]
        return "residual" if "residual" in kinds else kinds[0]


def recognises_pipedream(text: str) -> bool:
    """Whether a text begins as a PipeDream graph does."""
    line = text.lstrip().partition("\n")[0]
    return " -- " in line and "forward_compute_time=" in line


def pipedream_profile(
    text: str, *, file: str, name: str, element_bytes: int = 4, pool_indices: bool = True
) -> Profile:
    """Turn a PipeDream layer graph into a profile.

    Parameters
    ----------
    text : str
        The graph.
    file : str
        Its name, for errors and provenance.
    name : str
        Name of the profile.
    element_bytes : int
        Bytes of one activation; sizes masks and pooling indices.
    pool_indices : bool
        Whether max pooling saves an int64 index for each result, as PyTorch's does; cuDNN's does
        not.

    Returns
    -------
    Profile
        With source ``imported``; every assumption stands in its provenance.

    Raises
    ------
    InvalidFile
        When the text is not such a graph, an edge has an unknown end, or the graph has a cycle.
    SlackSwapError
        When `element_bytes` is impossible.
    """
    if element_bytes not in (1, 2, 4, 8):
        raise SlackSwapError(
            f"an activation of {element_bytes!r} bytes is not possible", where="element_bytes",
            fix="use 4 for fp32, 2 for fp16 and bf16",
        )
    aliases = _Aliases()
    nodes = aliases.resolve(_in_order(_parse(text, file), file))
    build = _Build(nodes, element_bytes, pool_indices)
    build.run()
    parameter_bytes = sum(node.parameter_bytes for node in nodes.values())
    return build.builder.profile(
        name,
        source="imported",
        # Weights, gradients, and a momentum.
        static_bytes=3 * parameter_bytes,
        provenance={
            "description": f"{len(build.ops)} measured layers of {name}; saved tensors inferred",
            "format": "pipedream",
            "file": file.replace("\\", "/").rpartition("/")[2],
            "layers": len(build.ops),
            "parameter_bytes": parameter_bytes,
            "element_bytes": element_bytes,
            "times": "measured: each layer on a GPU, by the PipeDream profiler",
            "graph": "layers and edges as in the file; saved tensors inferred",
            "assumptions": [*_assumptions(nodes, build, pool_indices), *aliases.assumptions()],
        },
    )


def _parse(text: str, file: str) -> dict[str, _Node]:
    nodes: dict[str, _Node] = {}
    edges: list[tuple[Place, str, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        place = Place(file, number)
        parts = [part.strip() for part in line.split(" -- ")]
        if not line.strip():
            continue
        if len(parts) == 2 and line[0].isspace():
            edges.append((place, parts[0], parts[1]))
        elif len(parts) >= 3 and not line[0].isspace():
            node = _node(parts, place)
            if node.name in nodes:
                place.fail(
                    f"{node.name} stands there twice, first on line {nodes[node.name].place.line}",
                    "give each node a name of its own",
                )
            nodes[node.name] = node
        else:
            place.fail(
                "is neither a node nor an edge",
                "write 'name -- layer -- forward_compute_time=...', or a tab and 'name -- name'",
            )
    if not nodes:
        Place(file, 1).fail("the file holds no node", "check that it is the file you meant")
    for place, source, target in edges:
        for end in (source, target):
            if end not in nodes:
                place.fail(f"there is no node {end[:60]!r}", "list the node, or remove the edge")
        if source not in nodes[target].reads:
            nodes[target].reads.append(source)
    return nodes


def _node(parts: list[str], place: Place) -> _Node:
    # A layer's description may hold the separator; its figures may be followed by a stage.
    at = next((i for i, part in enumerate(parts) if "forward_compute_time=" in part), None)
    if at is None or at < 2 or not parts[0]:
        place.fail("the node has no figures", f"write {', '.join(f'{k}=..' for k in _METADATA)}")
    fields = (item.partition("=") for item in parts[at].split(","))
    values = {key.strip(): value.strip() for key, _, value in fields}
    missing = [key for key in _METADATA if key not in values]
    if missing:
        place.fail(f"{missing[0]} is absent", f"write {missing[0]}=<number>")
    description = " -- ".join(parts[1:at])
    return _Node(
        parts[0],
        description,
        place,
        forward_ns=scaled(values["forward_compute_time"], 10**6, place, "forward_compute_time"),
        backward_ns=scaled(values["backward_compute_time"], 10**6, place, "backward_compute_time"),
        sizes=_sizes(values["activation_size"], place),
        parameter_bytes=scaled(values["parameter_size"], 1, place, "parameter_size"),
        kind=layer_kind(description),
    )


def _sizes(value: str, place: Place) -> tuple[int, ...]:
    """Return a size for each result; a layer with several lists them: ``[4096.0; 128.0]``."""
    items = value.removeprefix("[").removesuffix("]").split(";")
    return tuple(scaled(item, 1, place, "activation_size") for item in items)


def _in_order(nodes: dict[str, _Node], file: str) -> dict[str, _Node]:
    """Return the nodes in execution order: as numbered, as far as the edges allow."""
    readers: dict[str, list[str]] = defaultdict(list)
    for node in nodes.values():
        for source in node.reads:
            readers[source].append(node.name)
    waits = {name: len(node.reads) for name, node in nodes.items()}
    ready = [_number(name) for name, count in waits.items() if count == 0]
    heapq.heapify(ready)
    ordered: dict[str, _Node] = {}
    while ready:
        *_, name = heapq.heappop(ready)
        ordered[name] = nodes[name]
        for reader in readers[name]:
            waits[reader] -= 1
            if waits[reader] == 0:
                heapq.heappush(ready, _number(reader))
    stuck = next((node for name, node in nodes.items() if name not in ordered), None)
    if stuck is not None:
        stuck.place.fail(
            f"{stuck.name} waits for itself: the edges form a cycle", "remove one of the edges"
        )
    return ordered


def _number(name: str) -> tuple[int, str]:
    digits = re.search(r"[0-9]{1,9}$", name)
    return (int(digits[0]) if digits else 0), name


class _Aliases:
    """Drops the nodes that are no memory of their own, and lets their readers read what they are.

    These are views, which are their input; items of a tuple, which are one of its results; and
    sizes, which are numbers on the host.
    """

    def __init__(self) -> None:
        self._stands_for: dict[str, tuple[str, ...]] = {}
        self._nbytes: dict[str, int] = {}
        self._maker: dict[str, _Node] = {}
        self._unlike: list[str] = []

    def resolve(self, nodes: dict[str, _Node]) -> dict[str, _Node]:
        """Return the nodes that remain; they read results."""
        kept: dict[str, _Node] = {}
        items = [node for node in nodes.values() if node.kind.saves is Saves.ITEM]
        taken_apart = {source for node in items for source in node.reads}
        for name, node in nodes.items():
            if name not in taken_apart and node.kind.saves is not Saves.ITEM:
                node.sizes = (node.nbytes,)  # a tuple that stays whole is one storage
            sources = [self._stands_for[source] for source in node.reads]
            node.reads = list(dict.fromkeys(result for results in sources for result in results))
            alias = self._alias(node, [results for results in sources if results])
            if alias is None:
                kept[name] = node
                self._nbytes |= node.results
                self._maker |= dict.fromkeys(node.results, node)
            self._stands_for[name] = tuple(node.results) if alias is None else alias
        return kept

    def _alias(self, node: _Node, sources: list[tuple[str, ...]]) -> tuple[str, ...] | None:
        """Return the results that a node stands for; None when it makes its own."""
        saves = node.kind.saves
        if saves is Saves.SIZE:
            return ()
        if not sources or saves not in (Saves.VIEW, Saves.ITEM):
            return None
        source = max(sources, key=lambda results: sum(self._nbytes[name] for name in results))
        if saves is Saves.ITEM and len(source) > 1:
            # Taking an item is no work: its time is the rest of what made the tuple.
            self._maker[source[0]].forward_ns += node.forward_ns
            self._maker[source[0]].backward_ns += node.backward_ns
            return self._item(node, source)
        return None if node.forward_ns else source  # a view that takes time copies

    def _item(self, node: _Node, source: tuple[str, ...]) -> tuple[str, ...]:
        """Return the part of a tuple that an item is: the sizes tell, as tuples may be nested."""
        width = len(node.sizes)
        runs = [source[at : at + width] for at in range(len(source) - width + 1)]
        fitting = [
            at for at, run in enumerate(runs)
            if tuple(self._nbytes[name] for name in run) == node.sizes
        ]
        if not fitting:
            self._unlike.append(node.name)
            return source
        number = re.fullmatch(r"__getitem__\((-?[0-9]{1,4})\)", node.description.strip())
        wanted = int(number[1]) if number else 0
        if wanted < 0:
            return runs[fitting[max(wanted, -len(fitting))]]
        return runs[next((at for at in fitting if at >= wanted), fitting[-1])]

    def assumptions(self) -> Iterator[str]:
        """Yield what was assumed of items."""
        if self._unlike:
            yield (
                "items whose size is that of no result, taken to be the whole of their tuple: "
                + ", ".join(self._unlike)
            )


class _Build:
    """One pass over the layers."""

    def __init__(self, nodes: dict[str, _Node], element_bytes: int, pool_indices: bool) -> None:
        self.builder = ProfileBuilder()
        self.ops: list[_Op] = []
        self.copied: list[str] = []
        self._nodes = nodes
        self._element_bytes = element_bytes
        self._pool_indices = pool_indices
        self._readers: dict[str, list[str]] = defaultdict(list)
        for node in nodes.values():
            for result in node.reads:
                self._readers[result].append(node.name)
        self._storage: dict[str, str] = {}
        self._saved: dict[str, list[str]] = {}

    def run(self) -> None:
        """Lay out the forward ops, then the backward ops in reverse."""
        for node in self._nodes.values():
            if node.kind.saves is Saves.INPUT_OF_NET and not node.reads:
                self._declare(node)
            else:
                self._layer(node)
        for layer, op in enumerate(self.ops):
            self.builder.forward(
                "+".join(node.name for node in op.nodes),
                sum(node.forward_ns for node in op.nodes),
                reads=op.reads, writes=op.writes, layer=layer, kind=op.kind,
            )
        self._backward()

    def _declare(self, node: _Node) -> list[str]:
        results = [self.builder.tensor(name, nbytes) for name, nbytes in node.results.items()]
        self._storage |= {name: name for name in results}
        return results

    def _layer(self, node: _Node) -> None:
        reads = [self._storage[source] for source in node.reads]
        in_place = "inplace" in node.description.lower()
        if in_place and self._follows_its_input(node):
            op = self.ops[-1]
            target = self._storage[op.nodes[-1].name]
            op.nodes.append(node)
            op.reads += [name for name in reads if name != target and name not in op.reads]
            self._storage[node.name] = target
        else:
            if in_place:
                self.copied.append(node.name)
            op = _Op([node], reads, self._declare(node))
            self.ops.append(op)
        self._saved[node.name] = list(self._saves(node, reads, op))

    def _follows_its_input(self, node: _Node) -> bool:
        """Whether a layer can be one op with the one before it, whose result it overwrites."""
        if not self.ops:
            return False
        before = self.ops[-1].nodes[-1]
        return (
            before.name in node.reads
            and self._readers[before.name] == [node.name]
            and before.sizes == node.sizes
        )

    def _saves(self, node: _Node, reads: list[str], op: _Op) -> Iterator[str]:
        """Yield what the layer's backward op reads, making masks and indices on the way."""
        saves = node.kind.saves
        elements = node.nbytes // self._element_bytes
        if saves in (Saves.INPUTS, Saves.INPUT_AND_INDICES, Saves.ALL):
            yield from reads
        if saves in (Saves.RESULT, Saves.ALL):
            yield from (self._storage[name] for name in node.results)
        extra = None
        if saves is Saves.MASK:
            extra = self.builder.tensor(f"{node.name}.mask", _MASK_BYTES * elements)
        elif saves is Saves.INPUT_AND_INDICES and self._pool_indices:
            extra = self.builder.tensor(f"{node.name}.indices", _INDEX_BYTES * elements)
        if extra is not None:
            op.writes.append(extra)
            yield extra

    def _backward(self) -> None:
        layers = [(layer, node) for layer, op in enumerate(self.ops) for node in op.nodes]
        nbytes = {name: size for n in self._nodes.values() for name, size in n.results.items()}
        levels = gradient_levels(
            [(node.reads, tuple(node.results)) for _, node in layers],
            nbytes,
            without_gradient=nbytes.keys() - {name for _, n in layers for name in n.results},
            # A result that nobody reads gets no gradient if another one of its layer is read.
            roots=[
                name for _, node in layers for name in node.results
                if not any(self._readers[result] for result in node.results)
            ],
        )
        for (layer, node), level in zip(reversed(layers), reversed(levels), strict=True):
            self.builder.backward(
                f"{node.name}.bwd", node.backward_ns, reads=self._saved[node.name],
                workspace=level.workspace, carried=level.carried, layer=layer,
                kind=node.kind.kind,
            )


def _assumptions(nodes: dict[str, _Node], build: _Build, pool_indices: bool) -> Iterator[str]:
    yield "layers run in the order of their numbers, backward in reverse; the file has no loss"
    yield (
        "backward reads: the input of convolutions, products, norms and pooling; the result of "
        "ReLU and its like; a one-byte mask of dropout; nothing of sums and concatenations"
    )
    if pool_indices and any(n.kind.saves is Saves.INPUT_AND_INDICES for n in nodes.values()):
        yield "max pooling saves an int64 index for each result"
    merged = sum(len(op.nodes) - 1 for op in build.ops)
    if merged:
        yield f"{merged} in-place layers are one op, and one storage, with the layer before them"
    if build.copied:
        yield f"taken not to be in place, for others read the same: {', '.join(build.copied)}"
    inputs = [n for n in nodes.values() if n.kind.saves is Saves.INPUT_OF_NET and not n.reads]
    if any(node.forward_ns for node in inputs):
        milliseconds = sum(node.forward_ns for node in inputs) / 10**6
        yield f"the {milliseconds:g} ms of the input layer, which loads data, are left out"
    unknown = sorted({n.description.partition("(")[0] for n in nodes.values() if n.kind.guessed})
    if unknown:
        yield f"kinds not known, taken to save all they read and write: {', '.join(unknown)}"
    yield "forward ops have no workspace: the file does not tell it"
    yield "workspace and carried of backward ops: the activation gradients alive, by the graph"
    yield "static bytes: weights, gradients and one momentum"


