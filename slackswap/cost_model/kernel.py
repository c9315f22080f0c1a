"""The cost model compiled: the same simulation as the reference, over flat arrays.

All of it stands in this one file: numba's cache does not notice changes in callees elsewhere.
Sizes are int64 bytes, times int64 nanoseconds. Lists of ops and tensors are unsigned: an index that
cannot be negative is not checked for counting from the end. Time is O(steps + tensors) a plan,
memory linear in the profile and the longest step list. The compiled functions allocate nothing,
which spares the compiler work: `workspace` and `step_lists` do that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from slackswap.compiling import compiled_bare, compiled_part
from slackswap.frozen import read_only
from slackswap.hardware import WHOLE_PPM

if TYPE_CHECKING:
    from slackswap.graph import Graph

KEEP, SWAP, RECOMPUTE = 0, 1, 2

# Columns of the result table.
(
    OUTCOME,
    ITERATION_NS,
    FORWARD_NS,
    STALL_FORWARD_NS,
    STALL_BACKWARD_NS,
    RECOMPUTE_NS,
    PEAK_BYTES,
    MOVED_BYTES,
    D2H_BUSY_NS,
    H2D_BUSY_NS,
    STUCK_OP,
    STUCK_RECOMPUTE,
    STUCK_TENSOR,
    SHORTFALL_BYTES,
    STUCK_NS,
) = range(15)
N_COLUMNS = 15

# Values of OUTCOME.
FITS, STUCK_FORWARD, STUCK_BACKWARD, STUCK_INPUTS, CANNOT_RUN_AGAIN = range(5)

_NEVER = 2**62
_NONE = -1  # no step, op or tensor
_STEPS_TOO_SHORT = -1
_OP_CANNOT_RUN_AGAIN = -2


# What is left of a tensor after its last forward use.
_NOTHING, _ALL, _ALL_UNTIL_COPIED = range(3)


class GraphArrays(NamedTuple):
    """A profile, as `slackswap.graph.Graph` describes it."""

    nbytes: Any
    is_input: Any
    is_saved: Any
    last_read: Any
    forward_ns: Any
    forward_workspace: Any
    forward_writes: Any
    again_ok: Any
    backward_ns: Any
    backward_workspace: Any
    carried: Any
    producer: Any  # uint32, from here on
    last_use: Any
    reads_start: Any
    reads: Any
    writes_start: Any
    writes: Any
    backward_reads_start: Any
    backward_reads: Any


def graph_arrays(graph: Graph) -> GraphArrays:
    """Lay a graph out for the kernel."""
    def indices(values: Any) -> Any:
        return read_only(values.astype(np.uint32))  # inputs have no producer, and none is asked for

    csr = (graph.forward_reads, graph.forward_writes, graph.backward_reads)
    return GraphArrays(
        graph.nbytes, graph.is_input, graph.is_saved, graph.last_backward_read,
        graph.forward_ns, graph.forward_workspace, graph.forward_write_bytes, graph.recomputable,
        graph.backward_ns, graph.backward_workspace, graph.carried,
        indices(graph.producer), indices(graph.last_forward_use),
        *(indices(part) for lists in csr for part in (lists.start, lists.items)),
    )


class LinkArrays(NamedTuple):
    """Time of each tensor's transfer alone; rates in millionths while both directions run."""

    d2h_ns: Any
    h2d_ns: Any
    full_duplex: Any
    d2h_ppm: Any
    h2d_ppm: Any


class OrderArrays(NamedTuple):
    """Gates (-1 for none) and barriers: a row a plan, or no rows where no plan has any."""

    offload_gates: Any
    prefetch_gates: Any
    offload_barriers: Any
    prefetch_barriers: Any


class Workspace(NamedTuple):
    """What one simulation writes to, besides the steps."""

    available: Any  # bool[tensors]
    left: Any  # int8[tensors]: `_NOTHING`, `_ALL` or `_ALL_UNTIL_COPIED`
    last_need: Any  # int64[tensors]: step, or -1
    due: Any  # int64[swapped tensors]: first need of each in the queue, step and backward op
    due_op: Any
    out_end: Any  # int64[swapped tensors]: end of each offload in ns
    join_next: Any  # int64[tensors]: offload queue with gates, a linked list a forward op
    join_head: Any  # int64[forward ops]
    mark: Any  # int64[forward ops]: backward op whose closure took it last
    freed: Any  # int64[forward ops]: bytes freed after it
    first_step: Any  # int64[backward ops]
    transient_end: Any  # uint32[tensors]: step
    queue: Any  # uint32[swapped tensors], in the order of their return
    out_tensor: Any  # uint32[swapped tensors], in the order of their offload
    closure: Any  # uint32[forward ops]


class StepLists(NamedTuple):
    """The backward steps: int64[capacity] each, `window` uint32."""

    ns: Any
    needs: Any
    frees: Any
    forward: Any  # op that runs again; -1 in a backward step
    level: Any  # memory before the step, relative to the first, transfers left out
    peak: Any
    window: Any


def workspace(n_tensors: int, n_forward: int, n_backward: int) -> Workspace:
    """Allocate what `simulate_batch` works in; not shared between threads."""
    return Workspace._make([
        np.empty(n_tensors, np.bool_), np.empty(n_tensors, np.int8),
        *(np.empty(n_tensors, np.int64) for _ in range(5)),
        *(np.empty(n_forward, np.int64) for _ in range(3)), np.empty(n_backward, np.int64),
        *(np.empty(n_tensors, np.uint32) for _ in range(3)), np.empty(n_forward, np.uint32),
    ])


def step_lists(capacity: int) -> StepLists:
    """Allocate lists of up to `capacity` steps."""
    return StepLists._make(
        [*np.empty((6, capacity), np.int64), np.empty(capacity, np.uint32)]
    )


@compiled_part
def _sort(values: Any, count: int) -> None:
    """Sort the first `count` values in place: by insertion, with shrinking gaps if many."""
    gap = 1
    while gap * 9 < count:
        gap = gap * 3 + 1
    while gap > 0:
        for a in range(gap, count):
            value = values[a]
            b = a
            while b >= gap and values[b - gap] > value:
                values[b] = values[b - gap]
                b -= gap
            values[b] = value
        gap //= 3


@compiled_part
def _schedule(graph: Any, actions: Any, work: Any, steps: Any, row: Any) -> int:
    """Build the backward steps of one plan, and the list of swapped tensors that must return.

    Returns the number of steps; `_STEPS_TOO_SHORT`; or `_OP_CANNOT_RUN_AGAIN`, which `row` names.
    """
    available, left, last_need = work.available, work.left, work.last_need
    transient_end, closure, mark = work.transient_end, work.closure, work.mark
    reads_start, reads, producer = graph.reads_start, graph.reads, graph.producer
    capacity = len(steps.ns)
    # One loop an array: each is a fill or a comparison by the vector.
    for t in range(len(available)):
        available[t] = (actions[t] != RECOMPUTE) | graph.is_input[t]
    for t in range(len(left)):
        left[t] = _ALL
    for t in range(len(last_need)):
        last_need[t] = _NONE
    for op in range(len(mark)):
        mark[op] = _NONE
    for op in range(len(work.freed)):
        work.freed[op] = 0
    queued = 0
    step = 0
    recompute_ns = 0

    for j in range(len(graph.backward_ns)):
        work.first_step[j] = step
        # The closure list is also the queue of a breadth-first search through missing tensors.
        count = 0
        for at in range(graph.backward_reads_start[j], graph.backward_reads_start[j + 1]):
            t = graph.backward_reads[at]
            if not available[t] and mark[producer[t]] != j:
                mark[producer[t]] = j
                closure[count] = producer[t]
                count += 1
        seen = 0
        while seen < count:
            op = closure[seen]
            seen += 1
            for at in range(reads_start[op], reads_start[op + 1]):
                t = reads[at]
                if not available[t] and mark[producer[t]] != j:
                    mark[producer[t]] = j
                    closure[count] = producer[t]
                    count += 1
        if step + count + 1 > capacity:
            return _STEPS_TOO_SHORT
        if count > 1:
            _sort(closure, count)

        transients = 0
        for c in range(count):
            op = closure[c]
            if not graph.again_ok[op]:
                row[STUCK_OP] = j
                row[STUCK_RECOMPUTE] = op
                return _OP_CANNOT_RUN_AGAIN
            for at in range(reads_start[op], reads_start[op + 1]):
                t = reads[at]
                if available[t]:
                    if last_need[t] == _NONE and actions[t] == SWAP:
                        work.queue[queued] = t
                        work.due[queued] = step
                        work.due_op[queued] = j
                        queued += 1
                    last_need[t] = step
                else:
                    transient_end[t] = step
            needs = graph.forward_workspace[op] + graph.carried[j]
            steps.frees[step] = needs
            for at in range(graph.writes_start[op], graph.writes_start[op + 1]):
                t = graph.writes[at]
                if not available[t]:
                    needs += graph.nbytes[t]
                    if graph.is_saved[t] and graph.last_read[t] >= j:
                        available[t] = True
                    else:
                        transient_end[t] = step
                        transients += 1
            steps.ns[step] = graph.forward_ns[op]
            steps.needs[step] = needs
            steps.forward[step] = op
            recompute_ns += graph.forward_ns[op]
            step += 1
        if transients > 0:
            for c in range(count):
                op = closure[c]
                for at in range(graph.writes_start[op], graph.writes_start[op + 1]):
                    t = graph.writes[at]
                    if not available[t]:
                        steps.frees[transient_end[t]] += graph.nbytes[t]

        for at in range(graph.backward_reads_start[j], graph.backward_reads_start[j + 1]):
            t = graph.backward_reads[at]
            if last_need[t] == _NONE and actions[t] == SWAP:
                work.queue[queued] = t
                work.due[queued] = step
                work.due_op[queued] = j
                queued += 1
            last_need[t] = step
        steps.ns[step] = graph.backward_ns[j]
        steps.needs[step] = graph.backward_workspace[j]
        steps.frees[step] = graph.backward_workspace[j]
        steps.forward[step] = -1
        step += 1

    # In the order of their writing; inputs are never freed.
    joined = 0
    for at in range(len(graph.writes)):
        t = graph.writes[at]
        if last_need[t] == _NONE:
            left[t] = _NOTHING
        else:
            steps.frees[last_need[t]] += graph.nbytes[t]
            if actions[t] == RECOMPUTE:
                left[t] = _NOTHING
            elif actions[t] == SWAP:
                left[t] = _ALL_UNTIL_COPIED
                work.out_tensor[joined] = t
                joined += 1
        if left[t] == _NOTHING:
            work.freed[graph.last_use[t]] += graph.nbytes[t]
    row[RECOMPUTE_NS] = recompute_ns
    row[MOVED_BYTES] = queued  # for `_link`, which replaces it
    return step


@compiled_part
def _link(graph: Any, link: Any, order: Any, plan: int, work: Any, row: Any) -> Any:
    """Add up what the link carries, and sort the gated offloads; return the number of transfers."""
    n_swapped = row[MOVED_BYTES]
    moved = d2h_busy = h2d_busy = 0
    for place in range(n_swapped):
        t = work.queue[place]
        moved += graph.nbytes[t]
        d2h_busy += link.d2h_ns[t]
        h2d_busy += link.h2d_ns[t]
    row[MOVED_BYTES] = moved
    row[D2H_BUSY_NS] = d2h_busy
    row[H2D_BUSY_NS] = h2d_busy
    if len(order.offload_gates) > 0:
        # Linked lists by queueing op, filled from the back so that each is ascending.
        for i in range(len(work.join_head)):
            work.join_head[i] = _NONE
        for place in range(len(graph.nbytes)):
            t = len(graph.nbytes) - 1 - place
            if work.left[t] == _ALL_UNTIL_COPIED:
                i = max(graph.producer[t], order.offload_gates[plan, t])
                work.join_next[t] = work.join_head[i]
                work.join_head[i] = t
    return n_swapped


@compiled_part
def _stuck(
    row: Any, outcome: int, op: int, again: int, tensor: int, short: int, now: int
) -> None:
    row[OUTCOME] = outcome
    row[STUCK_OP] = op
    row[STUCK_RECOMPUTE] = again
    row[STUCK_TENSOR] = tensor
    row[SHORTFALL_BYTES] = short
    row[STUCK_NS] = now
    row[MOVED_BYTES] = row[D2H_BUSY_NS] = row[H2D_BUSY_NS] = 0


@compiled_part
def _forward(
    graph: Any, link: Any, budget: int, input_bytes: int, order: Any, plan: int, work: Any,
    n_swapped: int, row: Any,
) -> Any:
    """Run the forward pass; return instant, memory, and offloads ended and queued.

    The offloads' ends are final unless prefetches slow them later.
    """
    left, out_tensor, out_end = work.left, work.out_tensor, work.out_end
    has_gates, has_barriers = len(order.offload_gates) > 0, len(order.offload_barriers) > 0
    peak = memory = input_bytes
    now = link_free = 0
    ended = joined = 0
    for i in range(len(graph.forward_ns)):
        needs = graph.forward_writes[i] + graph.forward_workspace[i]
        while True:
            while ended < joined and out_end[ended] <= now:
                t = out_tensor[ended]
                left[t] = _NOTHING
                if graph.last_use[t] < i:
                    memory -= graph.nbytes[t]
                else:
                    work.freed[graph.last_use[t]] += graph.nbytes[t]
                ended += 1
            if memory + needs <= budget:
                break
            if ended == joined:
                _stuck(row, STUCK_FORWARD, i, -1, -1, memory + needs - budget, now)
                return now, memory, ended, joined
            now = out_end[ended]
        memory += needs
        peak = max(peak, memory)
        now += graph.forward_ns[i]
        memory -= graph.forward_workspace[i] + work.freed[i]
        if has_barriers and order.offload_barriers[plan, i] and ended < joined:
            now = max(now, out_end[joined - 1])
        if has_gates:
            gated = work.join_head[i]
            while gated != _NONE:
                link_free = max(link_free, now) + link.d2h_ns[gated]
                out_tensor[joined] = gated
                out_end[joined] = link_free
                joined += 1
                gated = work.join_next[gated]
        else:
            while joined < n_swapped and graph.producer[out_tensor[joined]] == i:
                link_free = max(link_free, now) + link.d2h_ns[out_tensor[joined]]
                out_end[joined] = link_free
                joined += 1
    row[FORWARD_NS] = now
    row[PEAK_BYTES] = peak
    return now, memory, ended, joined


@compiled_part
def _backward(
    graph: Any, link: Any, budget: int, order: Any, plan: int, work: Any, steps: Any,
    n_steps: int, n_swapped: int, passed: Any, row: Any,
) -> None:
    """Run the backward steps after a forward pass that ended as `passed` says."""
    now, memory, ended, joined = passed
    queue, due, out_tensor, out_end = work.queue, work.due, work.out_tensor, work.out_end
    left, level, peak_of, window = work.left, steps.level, steps.peak, steps.window
    has_gates, has_barriers = len(order.prefetch_gates) > 0, len(order.prefetch_barriers) > 0
    contended = link.d2h_ppm < WHOLE_PPM or link.h2d_ppm < WHOLE_PPM

    growth = busy = 0
    for k in range(n_steps):
        level[k] = growth
        peak_of[k] = growth + steps.needs[k]
        growth += steps.needs[k] - steps.frees[k]
        busy += steps.ns[k]

    peak = row[PEAK_BYTES]
    forward_ns = now
    k = 0
    j = 0  # backward op that step k belongs to
    running = False
    step_end = _NEVER
    started = resident = 0  # prefetches, in queue order
    prefetch_end = _NEVER
    barrier = 0  # number of prefetches that must have ended before compute goes on
    # A monotone queue holds the maxima of peak_of over steps k .. deadline of the head.
    win_head = win_tail = pushed = 0

    # Contention: work left (10^6 a nanosecond at the whole rate), the instant at which that was
    # so, and the rate since. Offloads still queued follow the running one without a gap, since no
    # more join.
    while ended < joined and out_end[ended] <= now:
        left[out_tensor[ended]] = _NOTHING
        memory -= graph.nbytes[out_tensor[ended]]
        ended += 1
    out_work = in_work = 0
    out_since = in_since = now
    out_rate = in_rate = WHOLE_PPM
    if contended and ended < joined:
        out_work = WHOLE_PPM * (out_end[ended] - now)

    while k < n_steps:
        while ended < joined and out_end[ended] <= now:
            t = out_tensor[ended]
            left[t] = _NOTHING
            memory -= graph.nbytes[t]
            ended += 1
            if contended and ended < joined:
                out_end[ended] = now + link.d2h_ns[out_tensor[ended]]
                out_work = WHOLE_PPM * link.d2h_ns[out_tensor[ended]]
                out_since, out_rate = now, WHOLE_PPM
        if prefetch_end <= now:
            resident += 1
            prefetch_end = _NEVER
        if step_end <= now:
            memory -= steps.frees[k]
            running = False
            step_end = _NEVER
            if steps.forward[k] < 0:
                if has_barriers and order.prefetch_barriers[plan, j]:
                    barrier = started
                j += 1
            k += 1
            if k == n_steps:
                break

        # The first step before which the next prefetch may start, if no transfer ends until then.
        blocked = n_steps
        while started < n_swapped and started == resident:
            t = queue[started]
            last = due[started]
            if left[t] != _NOTHING or (not link.full_duplex and ended < joined):
                break
            if has_gates and order.prefetch_gates[plan, t] >= 0:
                # A gate later than the first need acts as the backward op of that need.
                gate = min(order.prefetch_gates[plan, t], work.due_op[started])
                if k < work.first_step[gate]:
                    blocked = work.first_step[gate]
                    break
            if pushed < k:
                pushed = k
            while pushed <= last:
                while win_tail > win_head and peak_of[window[win_tail - 1]] <= peak_of[pushed]:
                    win_tail -= 1
                window[win_tail] = pushed
                win_tail += 1
                pushed += 1
            while window[win_head] < k:
                win_head += 1
            # What is in use less the level does not change from step to step.
            in_use = memory - steps.needs[k] if running else memory
            most = budget - graph.nbytes[t] - in_use + level[k]
            if peak_of[window[win_head]] > most:
                low, high = win_head + 1, win_tail
                while low < high:
                    middle = (low + high) // 2
                    if peak_of[window[middle]] > most:
                        low = middle + 1
                    else:
                        high = middle
                blocked = window[low - 1] + 1
                break
            memory += graph.nbytes[t]
            peak = max(peak, memory)
            started += 1
            if link.h2d_ns[t] == 0:
                resident += 1
            else:
                prefetch_end = now + link.h2d_ns[t]
                if contended:
                    in_work = WHOLE_PPM * link.h2d_ns[t]
                    in_since, in_rate = now, WHOLE_PPM

        here = resident == n_swapped or due[resident] > k
        if not running and here and resident >= barrier and memory + steps.needs[k] <= budget:
            # What a prefetch may take is the same before and after a step starts, so the prefetch
            # queue need not be asked again at this instant.
            memory += steps.needs[k]
            peak = max(peak, memory)
            running = True
            step_end = now + steps.ns[k]

        if contended:
            # To do this again at the same instant changes nothing: no work is done meanwhile.
            both = ended < joined and started > resident
            rate = link.d2h_ppm if both else WHOLE_PPM
            if ended < joined and rate != out_rate:
                out_work -= out_rate * (now - out_since)
                out_since, out_rate = now, rate
                end = now + (out_work + rate - 1) // rate
                row[D2H_BUSY_NS] += end - out_end[ended]
                out_end[ended] = end
            rate = link.h2d_ppm if both else WHOLE_PPM
            if started > resident and rate != in_rate:
                in_work -= in_rate * (now - in_since)
                in_since, in_rate = now, rate
                end = now + (in_work + rate - 1) // rate
                row[H2D_BUSY_NS] += end - prefetch_end
                prefetch_end = end

        next_transfer = prefetch_end
        if ended < joined:
            next_transfer = min(next_transfer, out_end[ended])
        if running and not has_barriers:
            # Steps that end before any transfer does, and after which no prefetch may start.
            until = blocked
            if resident < n_swapped:
                until = min(until, due[resident])
            while k + 1 < until and step_end < next_transfer:
                following = memory - steps.frees[k] + steps.needs[k + 1]
                if following > budget:
                    break
                if steps.forward[k] < 0:
                    j += 1
                k += 1
                memory = following
                peak = max(peak, memory)
                step_end += steps.ns[k]

        next_event = min(step_end, next_transfer)
        if next_event == _NEVER:
            short = memory + steps.needs[k] - budget
            if here:
                _stuck(row, STUCK_BACKWARD, j, steps.forward[k], -1, short, now)
            else:
                t = queue[resident]
                short += graph.nbytes[t]
                _stuck(row, STUCK_BACKWARD, j, steps.forward[k], t, short, now)
            return
        now = max(now, next_event)

    row[ITERATION_NS] = now
    stall_forward = forward_ns
    for i in range(len(graph.forward_ns)):
        stall_forward -= graph.forward_ns[i]
    row[STALL_FORWARD_NS] = stall_forward
    row[STALL_BACKWARD_NS] = now - forward_ns - busy
    row[PEAK_BYTES] = peak
    row[STUCK_OP] = row[STUCK_RECOMPUTE] = row[STUCK_TENSOR] = -1


@compiled_bare
def simulate_batch(
    graph: Any, link: Any, budget: int, actions: Any, order: Any, work: Any, steps: Any,
    table: Any, first: int,
) -> int:
    """Simulate many plans of one problem.

    Parameters
    ----------
    graph, link : GraphArrays, LinkArrays
        As `slackswap.cost_model.scorer` lays them out.
    budget : int
        Bytes.
    actions : int8[plans, tensors]
        KEEP, SWAP or RECOMPUTE; KEEP for inputs.
    order : OrderArrays
        Gates and barriers.
    work, steps : Workspace, StepLists
        What it works in.
    table : int64[plans, N_COLUMNS]
        Receives the results.
    first : int
        Where to begin.

    Returns
    -------
    int
        The plan whose steps do not fit into `steps`: go on there with longer lists. The number of
        plans when all are done.
    """
    input_bytes = 0
    for t in range(len(graph.nbytes)):
        if graph.is_input[t]:
            input_bytes += graph.nbytes[t]
    no_ops = len(graph.forward_ns) == 0 and len(graph.backward_ns) == 0
    for plan in range(first, len(actions)):
        row = table[plan]
        for column in range(N_COLUMNS):
            row[column] = 0
        n_steps = _schedule(graph, actions[plan], work, steps, row)
        if n_steps == _STEPS_TOO_SHORT:
            return plan
        if n_steps == _OP_CANNOT_RUN_AGAIN:
            row[OUTCOME] = CANNOT_RUN_AGAIN
            continue
        if no_ops and input_bytes > budget:
            _stuck(row, STUCK_INPUTS, -1, -1, -1, input_bytes - budget, 0)
            continue
        n_swapped = _link(graph, link, order, plan, work, row)
        passed = _forward(
            graph, link, budget, input_bytes, order, plan, work, n_swapped, row
        )
        if row[OUTCOME] == FITS:
            _backward(
                graph, link, budget, order, plan, work, steps, n_steps, n_swapped, passed, row
            )
    return len(actions)
