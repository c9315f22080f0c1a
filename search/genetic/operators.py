"""Variation: how genomes are drawn, changed and crossed.

Every operator draws from the `random.Random` it is given, and leaves a genome of the space a
genome of the space. They change genomes in place. None knows what an action costs: the
cost model says that of whole candidates.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from slackswap.cost_model.scorer import Bools, Codes
from slackswap.search.genetic.space import Genes, Space

Mutation = Callable[[Codes, Space, random.Random], None]
Crossover = Callable[[Codes, Codes, Space, random.Random], None]

#: Chance of yet another mutation.
_ANOTHER = 0.4


# ---------------------------------------------------------------------- a genome from nothing


def random_genome(space: Space, rng: random.Random) -> Codes:
    """Draw a genome: a random mix of actions a role, and each gene from its role's mix."""
    genome = np.empty(len(space), dtype=np.int8)
    for genes in space.roles:
        weights = [rng.expovariate(1.0) ** 2 for _ in range(3)]
        draws = np.frombuffer(rng.randbytes(4 * len(genes)), dtype=np.uint32) / 2.0**32
        table = space.allowed[genes] * weights
        bound = np.cumsum(table, axis=1)
        genome[genes] = (draws[:, np.newaxis] * bound[:, -1:] >= bound).sum(axis=1)
    return genome


# ---------------------------------------------------------------------- mutations


def point(genome: Codes, space: Space, rng: random.Random) -> None:
    """Give a few genes another action each."""
    for _ in range(_few(rng)):
        gene = rng.randrange(len(space))
        others = [code for code in space.choices[gene] if code != genome[gene]]
        genome[gene] = rng.choice(others)


def run_of_role(genome: Codes, space: Space, rng: random.Random) -> None:
    """Give a run of layers one action in one role; at times every second or third layer only."""
    genes = _run(_role(space, rng), rng)
    _assign(genome, space, genes, rng.randrange(3))


def shift(genome: Codes, space: Space, rng: random.Random) -> None:
    """Move a border between two actions along a role."""
    genes = _role(space, rng)
    codes = genome[genes]
    borders = np.flatnonzero(codes[1:] != codes[:-1])
    if not len(borders):
        run_of_role(genome, space, rng)
        return
    at = int(borders[rng.randrange(len(borders))])
    steps = _few(rng)
    if rng.random() < 0.5:
        _assign(genome, space, genes[at + 1 : at + 1 + steps], int(codes[at]))
    else:
        _assign(genome, space, genes[max(0, at + 1 - steps) : at + 1], int(codes[at + 1]))


def exchange(genome: Codes, space: Space, rng: random.Random) -> None:
    """Let two genes of about equal size, or of one role, exchange their actions."""
    for _ in range(8):
        gene = rng.randrange(len(space))
        if rng.random() < 0.5:
            genes = space.roles[space.role[gene]]
            other = int(genes[rng.randrange(len(genes))])
        else:
            begin, end = space.twins[gene].tolist()
            other = int(space.by_size[rng.randrange(begin, end)])
        a, b = int(genome[gene]), int(genome[other])
        if a != b and space.allowed[gene, b] and space.allowed[other, a]:
            genome[gene], genome[other] = b, a
            return
    point(genome, space, rng)


def exchange_runs(genome: Codes, space: Space, rng: random.Random) -> None:
    """Let two roles exchange their actions along a run of layers."""
    if not len(space.site):
        exchange(genome, space, rng)
        return
    # Two roles that meet in some layer.
    here = np.flatnonzero(space.site[rng.randrange(len(space.site))] >= 0)
    if len(here) < 2:
        exchange(genome, space, rng)
        return
    first, second = here[rng.sample(range(len(here)), 2)]
    rows = _run(np.arange(len(space.site), dtype=np.intp), rng)
    pairs = space.site[rows][:, [first, second]]
    pairs = pairs[(pairs >= 0).all(axis=1)]
    a, b = genome[pairs[:, 0]], genome[pairs[:, 1]]
    possible = space.allowed[pairs[:, 0], b] & space.allowed[pairs[:, 1], a]
    genome[pairs[possible, 0]], genome[pairs[possible, 1]] = b[possible], a[possible]


def copy_layer(genome: Codes, space: Space, rng: random.Random) -> None:
    """Do in a run of layers what one layer does."""
    if not len(space.site):
        run_of_role(genome, space, rng)
        return
    source = space.site[rng.randrange(len(space.site))]
    rows = _run(np.arange(len(space.site), dtype=np.intp), rng)
    there = space.site[rows]
    both = (source >= 0) & (there >= 0)
    genes = there[both]
    codes = np.broadcast_to(genome[source], there.shape)[both]
    possible = space.allowed[genes, codes]
    genome[genes[possible]] = codes[possible]


def thin(genome: Codes, space: Space, rng: random.Random) -> None:
    """Give a random share of those genes of a role that share an action another one."""
    genes = _role(space, rng)
    code = int(genome[genes[rng.randrange(len(genes))]])
    genes = genes[genome[genes] == code]
    share = rng.random()
    chosen = np.frombuffer(rng.randbytes(len(genes)), dtype=np.uint8) < 256 * share
    _assign(genome, space, genes[chosen], rng.choice([c for c in range(3) if c != code]))


# ---------------------------------------------------------------------- crossovers


def by_role(first: Codes, second: Codes, space: Space, rng: random.Random) -> None:
    """Exchange the genes of about half the roles."""
    coin = np.frombuffer(rng.randbytes(len(space.roles)), dtype=np.uint8) < 128
    _swap(first, second, coin[space.role])


def by_place(first: Codes, second: Codes, space: Space, rng: random.Random) -> None:
    """Exchange the genes between two points of the forward pass."""
    low, high = sorted(rng.randrange(len(space) + 1) for _ in range(2))
    mask = np.zeros(len(space), dtype=np.bool_)
    mask[low:high] = True
    _swap(first, second, mask)


def by_gene(first: Codes, second: Codes, space: Space, rng: random.Random) -> None:
    """Exchange about half the genes, one by one."""
    _swap(first, second, np.frombuffer(rng.randbytes(len(space)), dtype=np.uint8) < 128)


# ---------------------------------------------------------------------- all of them

#: Drawn with equal chance. `docs/genetic-search.md` shows what the search loses without each.
MUTATIONS: Mapping[str, Mutation] = {
    "point": point,
    "run": run_of_role,
    "shift": shift,
    "exchange": exchange,
    "exchange-runs": exchange_runs,
    "copy-layer": copy_layer,
    "thin": thin,
}
CROSSOVERS: Mapping[str, Crossover] = {"role": by_role, "place": by_place, "gene": by_gene}


def mutate(
    genome: Codes, *, space: Space, rng: random.Random, mutations: Sequence[Mutation]
) -> None:
    """Apply one mutation, and with falling chance more: some changes pay only together."""
    rng.choice(mutations)(genome, space, rng)
    while rng.random() < _ANOTHER:
        rng.choice(mutations)(genome, space, rng)


def cross(
    first: Codes,
    second: Codes,
    *,
    space: Space,
    rng: random.Random,
    crossovers: Sequence[Crossover],
) -> None:
    """Apply one crossover."""
    rng.choice(crossovers)(first, second, space, rng)


# ---------------------------------------------------------------------- small tools


def _few(rng: random.Random) -> int:
    """Draw 1, 2, 3, ... with halving probability."""
    count = 1
    while rng.random() < 0.5:
        count += 1
    return count


def _role(space: Space, rng: random.Random) -> Genes:
    """Draw a role, the large ones more often."""
    return space.roles[int(space.role[rng.randrange(len(space))])]


def _run(genes: Genes, rng: random.Random) -> Genes:
    """Draw a contiguous part, often from one end, at times with a stride."""
    count = len(genes)
    kind = rng.random()
    low, high = sorted(rng.randrange(count + 1) for _ in range(2))
    if kind < 0.25:
        low, high = 0, count
    elif kind < 0.45:
        low = 0
    elif kind < 0.65:
        high = count
    stride = rng.choice((1, 1, 1, 2, 3))
    return genes[low : max(high, low + 1) : stride]


def _assign(genome: Codes, space: Space, genes: Genes, code: int) -> None:
    genome[genes[space.allowed[genes, code]]] = code


def _swap(first: Codes, second: Codes, mask: Bools) -> None:
    first[mask], second[mask] = second[mask], first[mask]


