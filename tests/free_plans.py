"""The fastest plan of the free language, by exhaustive search: small problems only.

Time goes in steps of a nanosecond. A state says what is in memory, what the host has, what runs,
and for how long yet. It knows nothing of actions, closures, queues or gates: whatever moves of the
parts of tensors are possible are tried, in every order.
"""

from __future__ import annotations

from itertools import chain, combinations

from slackswap import Problem


def fastest(problem: Problem, parts: dict[int, tuple[int, ...]], most_states: int) -> int | None:
    """Return the least time of any free plan, in ns; None when there is none.

    Parameters
    ----------
    problem : Problem
        Without inputs and latency, and with a link of one byte a nanosecond each way.
    parts : dict of int to tuple of int
        Sizes of the parts that each tensor is split into; they sum to its size.
    most_states : int
        When to give up.

    Raises
    ------
    OverflowError
        When there are more states.
    """
    profile = problem.profile
    units = [(tensor, size) for tensor, sizes in parts.items() for size in sizes]
    of = {tensor: frozenset(u for u, (t, _) in enumerate(units) if t == tensor) for tensor in parts}
    size = [nbytes for _, nbytes in units]
    n_forward = len(profile.forward)
    ops = (*profile.forward, *profile.backward)
    reads = [frozenset(chain.from_iterable(of[t] for t in op.reads)) for op in ops]
    writes = [
        frozenset(chain.from_iterable(of[t] for t in getattr(op, "writes", ()))) for op in ops
    ]

    # (base ops done, op running or -1, its time left, units that it writes, memory, host,
    #  unit going out or -1, its time left, unit coming back or -1, its time left)
    start = (0, -1, 0, frozenset(), frozenset(), frozenset(), -1, 0, -1, 0)
    layer, seen, now = {start}, {start}, 0
    while layer:
        reached, todo = set(layer), list(layer)
        while todo:  # all that can begin at this instant
            state = todo.pop()
            if state[0] == len(ops):
                return now
            for following in _begin(state, problem, ops, n_forward, reads, writes, of, size):
                if following not in reached and following not in seen:
                    reached.add(following)
                    todo.append(following)
        seen |= reached
        if len(seen) > most_states:
            raise OverflowError
        layer = {after for state in reached for after in _tick(state, n_forward)} - seen
        seen |= layer
        now += 1
    return None


def _begin(state, problem, ops, n_forward, reads, writes, of, size):
    done, op, left, made, memory, host, out, out_left, back, back_left = state
    used = sum(size[u] for u in memory | made) + (size[back] if back >= 0 else 0)
    busy = (reads[op] if op >= 0 else frozenset()) | ({out} if out >= 0 else frozenset())
    if op >= 0:
        used += ops[op].workspace
    for unit in memory - busy:  # drop it
        yield (done, op, left, made, memory - {unit}, host, out, out_left, back, back_left)
    if out < 0:
        for unit in memory - host:
            yield (done, op, left, made, memory, host, unit, size[unit], back, back_left)
    if back < 0:
        for unit in host - memory - made:
            if used + size[unit] <= problem.budget_bytes:
                yield (done, op, left, made, memory, host, out, out_left, unit, size[unit])
    if op < 0:
        for new in {done, *range(min(done, n_forward))}:
            if not reads[new] <= memory:
                continue
            missing = writes[new] - memory - ({back} if back >= 0 else frozenset())
            first = new == done
            if not first and (not missing or not ops[new].recomputable):
                continue
            choices = [missing] if first else [
                frozenset(some) for n in range(1, len(missing) + 1)
                for some in combinations(sorted(missing), n)
            ]
            for some in choices:
                more = sum(size[u] for u in some) + ops[new].workspace
                if used + more <= problem.budget_bytes:
                    yield (done, new, ops[new].duration_ns, some, memory, host, out, out_left,
                           back, back_left)


def _tick(state, n_forward):
    done, op, left, made, memory, host, out, out_left, back, back_left = state
    if op < 0 and out < 0 and back < 0:
        return  # to wait for nothing changes nothing
    if op >= 0:
        left -= 1
        if left == 0:
            memory, made = memory | made, frozenset()
            done, op = done + (op == done), -1
    if out >= 0:
        out_left -= 1
        if out_left == 0:
            host, out = host | {out}, -1
    if back >= 0:
        back_left -= 1
        if back_left == 0:
            memory, back = memory | {back}, -1
    yield (done, op, left, made, memory, host, out, out_left, back, back_left)
