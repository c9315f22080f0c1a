"""The search space: which tensors a genome decides, and how they belong together."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from slackswap.cost_model.scorer import KEEP, RECOMPUTE, Bools, Codes, Ints, Scorer
from slackswap.errors import Infeasible
from slackswap.graph import Graph
from slackswap.profile import ForwardOp, Profile

#: Genes by index.
Genes = NDArray[np.intp]

_NUMBER = re.compile(r"\d+")
#: Running numbers come with a separator that the first of its kind lacks: ``add``, ``add_1``.
_COUNTER = re.compile(r"[._]?\d+")


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """Genes of a problem. A genome is an int8 array of action codes, one a gene.

    Attributes
    ----------
    tensor : int[genes]
        Tensor that each gene decides, in order of production.
    base : int8[tensors]
        Codes of the tensors that leave no choice; the rest is overwritten.
    allowed : bool[genes, 3]
        Which codes a gene may take.
    choices : tuple of tuple of int
        The same as lists.
    nbytes : int64[genes]
        Sizes.
    roles : tuple of int[members]
        Genes that do the same in different layers, in order of layers. Every gene is in one role.
    role : int[genes]
        Role of each gene.
    by_size : int[genes]
        Genes in ascending order of size.
    twins : int[genes, 2]
        By gene: where in `by_size` the genes of about its size, at most a fifth smaller and a
        quarter larger, begin and end.
    site : int[layers, roles]
        Gene of a role in a layer, or -1; no rows when the profile names no layers.
    """

    tensor: Genes
    base: Codes
    allowed: Bools
    choices: tuple[tuple[int, ...], ...]
    nbytes: Ints
    roles: tuple[Genes, ...]
    role: Genes
    by_size: Genes
    twins: NDArray[np.intp]
    site: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.tensor)

    @property
    def size(self) -> int:
        """Number of genomes."""
        return prod(map(len, self.choices))

    def codes(self, genomes: Sequence[Codes]) -> Codes:
        """Return int8[genomes, tensors], as `Scorer.score` takes them."""
        table = np.tile(self.base, (len(genomes), 1))
        if len(self):
            table[:, self.tensor] = genomes
        return table

    def genome(self, codes: Codes) -> Codes:
        """Return the genome of a valid plan's codes.

        Nothing is lost: where a tensor is no gene, all valid plans agree, or differ without effect.
        """
        return np.ascontiguousarray(codes[self.tensor])

    def holds(self, genome: Codes) -> bool:
        """Whether every gene has a code it may take."""
        return bool(self.allowed[np.arange(len(self)), genome].all())

    @classmethod
    def of(cls, scorer: Scorer) -> Space:
        """Lay out the search space of a problem.

        Left out as genes are tensors with one possible action, and intermediates that no closure
        can read or write: storing them changes nothing.

        Raises
        ------
        Infeasible
            When a tensor allows no action.
        """
        profile, graph = scorer.problem.profile, scorer.graph
        allowed = scorer.allowed.copy()
        # What a backward op reads and no op can write again must be stored.
        written = np.flatnonzero(~graph.is_input)
        stuck = written[~graph.recomputable[graph.producer[written]] & graph.is_saved[written]]
        allowed[stuck, RECOMPUTE] = False
        useless = graph.is_intermediate & ~_in_closures(graph)
        allowed[useless] = [False, False, True]
        nothing = np.flatnonzero(~allowed.any(axis=1))
        if len(nothing):
            raise Infeasible(
                "no action is possible: it is needed by a backward op, and its producer cannot "
                "run again",
                where=f"tensor {profile.tensors[int(nothing[0])].name!r}",
                fix="allow keep or swap",
            )
        genes = np.flatnonzero(allowed.sum(axis=1) > 1)
        genes = genes[np.argsort(graph.producer[genes], kind="stable")].astype(np.intp)
        base = allowed.argmax(axis=1).astype(np.int8)
        base[graph.is_input] = KEEP
        role, site = _roles(profile, graph, genes)
        by_size = np.argsort(graph.nbytes[genes], kind="stable").astype(np.intp)
        n_roles = int(role.max(initial=-1)) + 1
        return cls(
            tensor=genes,
            base=base,
            allowed=np.ascontiguousarray(allowed[genes]),
            choices=tuple(tuple(np.flatnonzero(row).tolist()) for row in allowed[genes]),
            nbytes=graph.nbytes[genes],
            roles=tuple(np.flatnonzero(role == r).astype(np.intp) for r in range(n_roles)),
            role=role,
            by_size=by_size,
            twins=_twins(graph.nbytes[genes][by_size], graph.nbytes[genes]),
            site=site,
        )


def _in_closures(graph: Graph) -> Bools:
    """Tensors that an op reads or writes which may run again for some saved tensor."""
    reached = np.zeros(graph.n_tensors, dtype=np.bool_)
    ops = np.zeros(graph.n_forward, dtype=np.bool_)
    ops[graph.producer[graph.is_saved]] = True
    # Producers come before readers, so one walk backwards settles every op.
    for op in range(graph.n_forward - 1, -1, -1):
        if ops[op] and graph.recomputable[op]:
            reads = graph.forward_reads[op]
            reached[reads] = True
            reached[graph.forward_writes[op]] = True
            ops[graph.producer[reads[~graph.is_input[reads]]]] = True
    return reached


def _twins(ascending: Ints, nbytes: Ints) -> NDArray[np.intp]:
    begin = np.searchsorted(ascending, -(-4 * nbytes // 5), side="left")
    end = np.searchsorted(ascending, 5 * nbytes // 4, side="right")
    return np.column_stack((begin, end)).astype(np.intp)


def _roles(profile: Profile, graph: Graph, genes: Genes) -> tuple[Genes, NDArray[np.intp]]:
    """Group genes by role, and lay them out by layer and role.

    A role is the tensor's name and its producer's kind without numbers, and its place among those
    of its layer that share them: ``layer7.dropout2.mask`` is the second of its kind.
    So names that carry a layer's number, running numbers (``add_31``) or no numbers all work.
    """
    layers = _layers(profile, graph, genes)
    numbered = len(set(layers)) > 1
    seen: dict[int, Counter[tuple[str, ...]]] = defaultdict(Counter)
    role_of: dict[tuple[str, ...], int] = {}
    role = np.empty(len(genes), dtype=np.intp)
    for gene, (tensor, layer) in enumerate(zip(genes.tolist(), layers, strict=True)):
        op = profile.forward[graph.producer[tensor]]
        name = profile.tensors[tensor].name
        key: tuple[str, ...] = (_COUNTER.sub("", name), op.kind or "")
        if numbered:
            seen[layer][key] += 1
            key = (*key, str(seen[layer][key]))
        role[gene] = role_of.setdefault(key, len(role_of))
    if not numbered:
        return role, np.empty((0, len(role_of)), dtype=np.intp)
    order = {layer: row for row, layer in enumerate(sorted(set(layers)))}
    site = np.full((len(order), len(role_of)), -1, dtype=np.intp)
    for gene, layer in enumerate(layers):
        site[order[layer], role[gene]] = gene
    return role, site


def _layers(profile: Profile, graph: Graph, genes: Genes) -> list[int]:
    """Layer of each gene: as the profile says, else the first number in the tensor's name."""
    ops: list[ForwardOp] = [profile.forward[graph.producer[tensor]] for tensor in genes]
    if any(op.layer is not None for op in ops):
        return [-1 if op.layer is None else op.layer for op in ops]
    names = [profile.tensors[tensor].name for tensor in genes]
    numbers = [_NUMBER.search(name) for name in names]
    layers = [-1 if number is None else int(number[0]) for number in numbers]
    # A number that (nearly) every tensor has to itself counts tensors, not layers.
    return layers if 2 * len(set(layers)) <= len(layers) else [-1] * len(layers)
