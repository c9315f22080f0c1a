"""The cost model compiled: the same simulation as the reference, over flat arrays.

All of it stands in this one file: numba's cache does not notice changes in callees elsewhere.
Sizes are int64 bytes, times int64 nanoseconds. Time is O(steps + tensors) a plan, memory linear in
the profile and the longest step list.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

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

_NEVER = np.int64(2**62)
_SHORT = 32  # closures up to this length are sorted by insertion


@njit(cache=True, nogil=True)
def _sort(values: Any, count: int) -> None:
    """Sort the first `count` values in place."""
    if count > _SHORT:
        values[:count].sort()
        return
    for a in range(1, count):
        value = values[a]
        b = a
        while b > 0 and values[b - 1] > value:
            values[b] = values[b - 1]
            b -= 1
        values[b] = value


@njit(cache=True, nogil=True)
def _schedule(graph: Any, actions: Any, work: Any, steps: Any, row: Any) -> int:
    """Build the backward steps of one plan.

    Returns the number of steps; -1 when `steps` is too short; -2 when an op that cannot run again
    would have to (named in `row`).
    """
    (
        nbytes, producer, is_input, is_saved, _last_use, last_read, f_ns, f_ws, _f_write, again_ok,
        b_ns, b_ws, carried, fr_start, fr_items, fw_start, fw_items, br_start, br_items,
        _lu_start, _lu_items,
    ) = graph
    (
        available, first_need, last_need, transient_end, closure, mark, first_step, queue, deadline,
    ) = work
    step_ns, step_needs, step_frees, step_forward, _level, _peak, _window = steps

    n_tensors, n_backward, capacity = len(nbytes), len(b_ns), len(step_ns)
    for t in range(n_tensors):
        available[t] = actions[t] != RECOMPUTE
        first_need[t] = -1
        last_need[t] = -1
    mark[:] = -1
    queued = 0
    n_steps = 0
    recompute_ns = 0

    for j in range(n_backward):
        first_step[j] = n_steps
        # The closure list is also the queue of a breadth-first search through missing tensors.
        count = 0
        for at in range(br_start[j], br_start[j + 1]):
            t = br_items[at]
            if not available[t] and mark[producer[t]] != j:
                mark[producer[t]] = j
                closure[count] = producer[t]
                count += 1
        seen = 0
        while seen < count:
            op = closure[seen]
            seen += 1
            for at in range(fr_start[op], fr_start[op + 1]):
                t = fr_items[at]
                if not available[t] and mark[producer[t]] != j:
                    mark[producer[t]] = j
                    closure[count] = producer[t]
                    count += 1
        if n_steps + count + 1 > capacity:
            return -1
        if count > 1:
            _sort(closure, count)

        for c in range(count):
            op = closure[c]
            if not again_ok[op]:
                row[STUCK_OP] = j
                row[STUCK_RECOMPUTE] = op
                return -2
            for at in range(fr_start[op], fr_start[op + 1]):
                t = fr_items[at]
                if available[t]:
                    last_need[t] = n_steps
                    if first_need[t] < 0:
                        first_need[t] = n_steps
                        if actions[t] == SWAP:
                            queue[queued] = t
                            deadline[queued] = n_steps
                            queued += 1
                else:
                    transient_end[t] = n_steps
            written = 0
            for at in range(fw_start[op], fw_start[op + 1]):
                t = fw_items[at]
                if not available[t]:
                    written += nbytes[t]
                    if is_saved[t] and last_read[t] >= j:
                        available[t] = True
                    else:
                        transient_end[t] = n_steps
            workspace = f_ws[op] + carried[j]
            step_ns[n_steps] = f_ns[op]
            step_needs[n_steps] = written + workspace
            step_frees[n_steps] = workspace
            step_forward[n_steps] = op
            recompute_ns += f_ns[op]
            n_steps += 1
        for c in range(count):
            op = closure[c]
            for at in range(fw_start[op], fw_start[op + 1]):
                t = fw_items[at]
                if not available[t]:
                    step_frees[transient_end[t]] += nbytes[t]

        for at in range(br_start[j], br_start[j + 1]):
            t = br_items[at]
            last_need[t] = n_steps
            if first_need[t] < 0:
                first_need[t] = n_steps
                if actions[t] == SWAP:
                    queue[queued] = t
                    deadline[queued] = n_steps
                    queued += 1
        step_ns[n_steps] = b_ns[j]
        step_needs[n_steps] = b_ws[j]
        step_frees[n_steps] = b_ws[j]
        step_forward[n_steps] = -1
        n_steps += 1

    for t in range(n_tensors):
        if last_need[t] >= 0 and not is_input[t]:
            step_frees[last_need[t]] += nbytes[t]
    if queued < len(queue):
        queue[queued] = -1  # ends the list
    row[RECOMPUTE_NS] = recompute_ns
    return n_steps


@njit(cache=True, nogil=True)
def _run(
    graph: Any, link: Any, budget: int, actions: Any, order: Any, work: Any, steps: Any,
    transfers: Any, n_steps: int, row: Any,
) -> None:
    """Simulate one plan whose steps are built; the result goes to `row`."""
    (
        nbytes, producer, is_input, _is_saved, last_use, _last_read, f_ns, f_ws, f_write, _again_ok,
        b_ns, _b_ws, _carried, _fr_start, _fr_items, fw_start, fw_items, _br_start, _br_items,
        lu_start, lu_items,
    ) = graph
    d2h_ns, h2d_ns, full_duplex = link
    has_gates, offload_gate, prefetch_gate, has_barriers, offload_barrier, prefetch_barrier = order
    (
        _available, first_need, last_need, _transient, _closure, _mark, first_step, queue, deadline,
    ) = work
    step_ns, step_needs, step_frees, step_forward, level, peak_of, window = steps
    copied, off_tensor, off_end, join_head, join_next = transfers

    n_tensors, n_forward, n_backward = len(nbytes), len(f_ns), len(b_ns)
    moved = d2h_busy = h2d_busy = np.int64(0)
    n_swapped = 0
    for t in range(n_tensors):
        copied[t] = False
    while n_swapped < n_tensors and queue[n_swapped] >= 0:
        t = queue[n_swapped]
        moved += nbytes[t]
        d2h_busy += d2h_ns[t]
        h2d_busy += h2d_ns[t]
        n_swapped += 1
    if has_gates:
        # Linked lists by queueing op, filled from the back so that each is ascending.
        for i in range(n_forward):
            join_head[i] = -1
        for t in range(n_tensors - 1, -1, -1):
            if actions[t] == SWAP and first_need[t] >= 0:
                i = max(producer[t], offload_gate[t])
                join_next[t] = join_head[i]
                join_head[i] = t

    # ------------------------------------------------------------------ forward pass
    memory = np.int64(0)
    for t in range(n_tensors):
        if is_input[t]:
            memory += nbytes[t]
    peak = memory
    if memory > budget and n_forward == 0 and n_steps == 0:
        row[OUTCOME] = STUCK_INPUTS
        row[STUCK_OP] = -1
        row[STUCK_RECOMPUTE] = -1
        row[STUCK_TENSOR] = -1
        row[SHORTFALL_BYTES] = memory - budget
        return
    now = np.int64(0)
    busy = np.int64(0)
    ended = joined = 0
    link_free = np.int64(0)
    for i in range(n_forward):
        needs = f_write[i] + f_ws[i]
        while True:
            while ended < joined and off_end[ended] <= now:
                t = off_tensor[ended]
                copied[t] = True
                if last_use[t] < i:
                    memory -= nbytes[t]
                ended += 1
            if memory + needs <= budget:
                break
            if ended == joined:
                row[OUTCOME] = STUCK_FORWARD
                row[STUCK_OP] = i
                row[STUCK_RECOMPUTE] = -1
                row[STUCK_TENSOR] = -1
                row[SHORTFALL_BYTES] = memory + needs - budget
                row[STUCK_NS] = now
                return
            now = off_end[ended]
        memory += needs
        if memory > peak:
            peak = memory
        now += f_ns[i]
        busy += f_ns[i]
        memory -= f_ws[i]
        for at in range(lu_start[i], lu_start[i + 1]):
            t = lu_items[at]
            if actions[t] == RECOMPUTE or last_need[t] < 0 or copied[t]:
                memory -= nbytes[t]
        if has_barriers and offload_barrier[i] and ended < joined:
            now = max(now, off_end[joined - 1])
        if has_gates:
            t = join_head[i]
            while t >= 0:
                link_free = max(link_free, now) + d2h_ns[t]
                off_tensor[joined] = t
                off_end[joined] = link_free
                joined += 1
                t = join_next[t]
        else:
            for at in range(fw_start[i], fw_start[i + 1]):
                t = fw_items[at]
                if actions[t] == SWAP and first_need[t] >= 0:
                    link_free = max(link_free, now) + d2h_ns[t]
                    off_tensor[joined] = t
                    off_end[joined] = link_free
                    joined += 1
    forward_ns = now

    # ------------------------------------------------------------------ backward pass
    # level[k]: memory before step k relative to before step 0, transfers left out.
    growth = np.int64(0)
    for k in range(n_steps):
        level[k] = growth
        peak_of[k] = growth + step_needs[k]
        growth += step_needs[k] - step_frees[k]
        busy += step_ns[k]

    k = 0
    j = 0  # backward op that step k belongs to
    running = False
    step_end = _NEVER
    started = resident = 0  # prefetches, in queue order
    prefetch_end = _NEVER
    barrier = 0  # number of prefetches that must have ended before compute goes on
    # A monotone queue holds the maxima of peak_of over steps k .. deadline of the head.
    win_head = win_tail = pushed = 0

    while k < n_steps:
        while ended < joined and off_end[ended] <= now:
            t = off_tensor[ended]
            copied[t] = True
            memory -= nbytes[t]
            ended += 1
        if prefetch_end <= now:
            resident += 1
            prefetch_end = _NEVER
        if step_end <= now:
            memory -= step_frees[k]
            running = False
            step_end = _NEVER
            if step_forward[k] < 0:
                if has_barriers and prefetch_barrier[j]:
                    barrier = started
                j += 1
            k += 1
            if k == n_steps:
                break

        while started < n_swapped and started == resident:
            t = queue[started]
            due = deadline[started]
            if not copied[t] or (not full_duplex and ended < joined):
                break
            if has_gates and prefetch_gate[t] >= 0:
                gate_step = first_step[prefetch_gate[t]]
                if k < gate_step:
                    # A gate later than the first need acts as the backward op of that need.
                    need_op = np.searchsorted(first_step[:n_backward], due, side="right") - 1
                    if k < first_step[min(need_op, prefetch_gate[t])]:
                        break
            if pushed < k:
                pushed = k
            while pushed <= due:
                while win_tail > win_head and peak_of[window[win_tail - 1]] <= peak_of[pushed]:
                    win_tail -= 1
                window[win_tail] = pushed
                win_tail += 1
                pushed += 1
            while window[win_head] < k:
                win_head += 1
            in_use = memory - step_needs[k] if running else memory
            if in_use + nbytes[t] + peak_of[window[win_head]] - level[k] > budget:
                break
            memory += nbytes[t]
            if memory > peak:
                peak = memory
            started += 1
            prefetch_end = now + h2d_ns[t]
            if h2d_ns[t] == 0:
                resident += 1
                prefetch_end = _NEVER

        here = resident == n_swapped or deadline[resident] > k
        if not running and here and resident >= barrier and memory + step_needs[k] <= budget:
            # What a prefetch may take is the same before and after a step starts, so the prefetch
            # queue need not be asked again at this instant.
            memory += step_needs[k]
            if memory > peak:
                peak = memory
            running = True
            step_end = now + step_ns[k]

        next_event = min(step_end, prefetch_end)
        if ended < joined:
            next_event = min(next_event, off_end[ended])
        if next_event == _NEVER:
            row[OUTCOME] = STUCK_BACKWARD
            row[STUCK_OP] = j
            row[STUCK_RECOMPUTE] = step_forward[k]
            row[STUCK_NS] = now
            if resident < n_swapped and deadline[resident] <= k:
                t = queue[resident]
                row[STUCK_TENSOR] = t
                row[SHORTFALL_BYTES] = memory + nbytes[t] + step_needs[k] - budget
            else:
                row[STUCK_TENSOR] = -1
                row[SHORTFALL_BYTES] = memory + step_needs[k] - budget
            return
        if next_event > now:
            now = next_event

    row[OUTCOME] = FITS
    row[ITERATION_NS] = now
    row[FORWARD_NS] = forward_ns
    forward_busy = np.int64(0)
    for i in range(n_forward):
        forward_busy += f_ns[i]
    row[STALL_FORWARD_NS] = forward_ns - forward_busy
    row[STALL_BACKWARD_NS] = now - busy - (forward_ns - forward_busy)
    row[PEAK_BYTES] = peak
    row[MOVED_BYTES] = moved
    row[D2H_BUSY_NS] = d2h_busy
    row[H2D_BUSY_NS] = h2d_busy
    row[STUCK_OP] = -1
    row[STUCK_RECOMPUTE] = -1
    row[STUCK_TENSOR] = -1


@njit(cache=True, nogil=True)
def simulate_batch(
    graph: Any, link: Any, budget: int, actions: Any, offload_gates: Any, prefetch_gates: Any,
    offload_barriers: Any, prefetch_barriers: Any, table: Any,
) -> None:
    """Simulate many plans of one problem.

    Parameters
    ----------
    graph, link : tuple of arrays
        As `slackswap.cost_model.scorer` lays them out.
    budget : int
        Bytes.
    actions : int8[plans, tensors]
        KEEP, SWAP or RECOMPUTE; KEEP for inputs.
    offload_gates, prefetch_gates : int64[plans, tensors] or of no rows
        Op index, -1 for none.
    offload_barriers, prefetch_barriers : bool[plans, ops] or of no rows
        Where the barriers are.
    table : int64[plans, N_COLUMNS]
        Receives the results.
    """
    n_tensors = len(graph[0])
    n_forward = len(graph[6])
    n_backward = len(graph[10])
    work = (
        np.empty(n_tensors, np.bool_),
        np.empty(n_tensors, np.int64),
        np.empty(n_tensors, np.int64),
        np.empty(n_tensors, np.int64),
        np.empty(n_forward, np.int64),
        np.empty(n_forward, np.int64),
        np.empty(n_backward, np.int64),
        np.empty(n_tensors, np.int64),
        np.empty(n_tensors, np.int64),
    )
    transfers = (
        np.empty(n_tensors, np.bool_),
        np.empty(n_tensors, np.int64),
        np.empty(n_tensors, np.int64),
        np.empty(n_forward, np.int64),
        np.empty(n_tensors, np.int64),
    )
    capacity = n_forward + n_backward + 1
    steps = np.empty((7, capacity), np.int64)
    has_gates = len(offload_gates) > 0
    has_barriers = len(offload_barriers) > 0
    for p in range(len(actions)):
        row = table[p]
        row[:] = 0
        g = p if has_gates else 0
        b = p if has_barriers else 0
        order = (
            has_gates,
            offload_gates[g] if has_gates else offload_gates.ravel(),
            prefetch_gates[g] if has_gates else prefetch_gates.ravel(),
            has_barriers,
            offload_barriers[b] if has_barriers else offload_barriers.ravel(),
            prefetch_barriers[b] if has_barriers else prefetch_barriers.ravel(),
        )
        lists = (steps[0], steps[1], steps[2], steps[3], steps[4], steps[5], steps[6])
        n_steps = _schedule(graph, actions[p], work, lists, row)
        while n_steps == -1:
            capacity *= 2
            steps = np.empty((7, capacity), np.int64)
            lists = (steps[0], steps[1], steps[2], steps[3], steps[4], steps[5], steps[6])
            n_steps = _schedule(graph, actions[p], work, lists, row)
        if n_steps == -2:
            row[OUTCOME] = CANNOT_RUN_AGAIN
            row[RECOMPUTE_NS] = 0
            continue
        _run(graph, link, budget, actions[p], order, work, lists, transfers, n_steps, row)
