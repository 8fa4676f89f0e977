"""An event-driven schedule of tasks that queue for resources and share links.

A task becomes ready when all its predecessors are done. It then takes a place on its resource,
first come first served, works for its own time and moves its bytes over its links. A link is
divided equally among the transfers on it, and a transfer goes as fast as its slowest link allows
(processor sharing). A link may save up credit while it has capacity to spare (a token bucket, as of
shaped or buffered links): that many bytes of the next transfer pass at once. Tasks that need
neither a resource nor a link never enter the event queue: their finish is known as soon as they are
ready, so they cost no more than in a longest-path pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.model.errors import InvalidInput

Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]
Floats = NDArray[np.float64]

_READY, _WORKED, _MOVED = 0, 1, 2


@dataclass(frozen=True)
class TaskGraph:
    """Who waits for whom, and what each task needs; built once, scheduled with many costs."""

    # Successors of every task in CSR form, and how many predecessors each has.
    first: Ints
    successors: Ints32
    waiting: Ints32
    # The resource a task takes a place on, or -1; the links it moves its bytes over, in CSR form.
    resource: Ints
    link_first: Ints
    links: Ints
    # The tasks that need a resource or a link, in order, and the place of every task among them
    # (-1: it needs neither). The others are most of a graph, so they should cost little.
    contending: Ints
    place: Ints32

    @property
    def count(self) -> int:
        """Return how many tasks there are."""
        return len(self.waiting)


@dataclass(frozen=True)
class Costs:
    """How long every task works, what it moves, and what resources and links can do."""

    work: Floats
    size: Floats
    # Places of every resource; bytes per unit of time of every link.
    places: Ints
    bandwidth: Floats
    # Bytes that each link lets through at once after a pause; None: none.
    credit: Floats | None = None


@dataclass(frozen=True)
class Schedule:
    """When every task was ready, began (got its place) and finished."""

    ready: Floats
    start: Floats
    finish: Floats
    # The task whose end let this one begin: a predecessor, or who held its resource; -1 for none.
    released_by: Ints


def build_task_graph(
    sources: Ints, *, targets: Ints, resource: Ints, link_first: Ints, links: Ints
) -> TaskGraph:
    """Return the graph of the tasks that ``resource`` numbers, with the given dependencies."""
    count = len(resource)
    sources, targets = np.asarray(sources, np.int64), np.asarray(targets, np.int64)
    first = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(sources, minlength=count), out=first[1:])
    successors = targets[np.argsort(sources, kind="stable")].astype(np.int32)
    waiting = np.bincount(targets, minlength=count).astype(np.int32)
    contending = np.flatnonzero((resource >= 0) | (np.diff(link_first) > 0)).astype(np.int64)
    place = np.full(count, -1, np.int32)
    place[contending] = np.arange(len(contending))
    return TaskGraph(
        first=first,
        successors=successors,
        waiting=waiting,
        resource=resource,
        link_first=link_first,
        links=links,
        contending=contending,
        place=place,
    )


def schedule_tasks(graph: TaskGraph, costs: Costs) -> Schedule:
    """Return when every task runs; refuses a graph whose tasks wait for each other."""
    ready = np.zeros(graph.count, np.float64)
    finish = np.zeros(graph.count, np.float64)
    released_by = np.full(graph.count, -1, np.int64)
    chosen = graph.contending
    begin = np.zeros(len(chosen), np.float64)
    bandwidth = np.asarray(costs.bandwidth, np.float64)
    credit = np.zeros(len(bandwidth)) if costs.credit is None else costs.credit
    done = _run(
        graph.first,
        graph.successors,
        graph.waiting.copy(),
        graph.place,
        chosen,
        graph.resource[chosen],
        np.append(graph.link_first[chosen], graph.link_first[-1:]),
        graph.links,
        np.asarray(costs.work, np.float64),
        np.asarray(costs.size, np.float64)[chosen],
        costs.places.astype(np.int64),
        bandwidth,
        np.asarray(credit, np.float64),
        ready,
        begin,
        finish,
        released_by,
    )
    if done < graph.count:
        raise InvalidInput(
            f"The replay stops: {graph.count - done} of {graph.count} tasks wait for each other or "
            "for a link without bandwidth; an operation may only wait for earlier ones."
        )
    start = ready.copy()
    start[chosen] = begin
    return Schedule(ready, start, finish, released_by)


@njit(cache=True, nogil=True)
def _push(times, items, size, time, item):  # type: ignore[no-untyped-def]
    """Put an event into the binary heap; the earliest, then the lowest number, is on top."""
    at = size
    while at > 0:
        up = (at - 1) >> 1
        if times[up] < time or (times[up] == time and items[up] <= item):
            break
        times[at] = times[up]
        items[at] = items[up]
        at = up
    times[at] = time
    items[at] = item
    return size + 1


@njit(cache=True, nogil=True)
def _pop(times, items, size):  # type: ignore[no-untyped-def]
    """Remove the top of the heap; the caller has read it."""
    size -= 1
    time, item = times[size], items[size]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        right = down + 1
        if right < size and (
            times[right] < times[down]
            or (times[right] == times[down] and items[right] < items[down])
        ):
            down = right
        if times[down] > time or (times[down] == time and items[down] >= item):
            break
        times[at] = times[down]
        items[at] = items[down]
        at = down
    times[at] = time
    items[at] = item
    return size


@njit(cache=True, nogil=True)
def _rate(task, link_first, links, bandwidth, users):  # type: ignore[no-untyped-def]
    """Return how fast a transfer goes: the smallest equal share among its links."""
    rate = np.inf
    for at in range(link_first[task], link_first[task + 1]):
        link = links[at]
        rate = min(rate, bandwidth[link] / users[link])
    return rate


@njit(cache=True, nogil=True)
def _save(link, now, credit, bandwidth, flow, saved, saved_at):  # type: ignore[no-untyped-def]
    """Add what a link had to spare since it was last looked at to its credit."""
    spare = (bandwidth[link] - flow[link]) * (now - saved_at[link])
    saved[link] = min(credit[link], saved[link] + max(spare, 0.0))
    saved_at[link] = now


# One function on purpose: numba keeps the whole state of the event loop in registers and arrays.
# Tasks are numbered as in the graph; a slot numbers only those that need a resource or a link.
@njit(cache=True, nogil=True)
def _run(  # type: ignore[no-untyped-def]
    first,
    successors,
    waiting,
    place,
    contending,
    resource,
    link_first,
    links,
    work,
    size,
    places,
    bandwidth,
    credit,
    ready,
    begin,
    finish,
    released_by,
):
    count, slots = len(waiting), len(contending)
    free = places.copy()
    head = np.full(len(places), -1, np.int64)
    tail = np.full(len(places), -1, np.int64)
    queued = np.full(slots, -1, np.int64)
    # Transfers under way: what is left, since when, how fast, and which event is still valid.
    left = np.zeros(slots, np.float64)
    since = np.zeros(slots, np.float64)
    speed = np.zeros(slots, np.float64)
    due = np.full(slots, -1.0, np.float64)
    users = np.zeros(len(bandwidth), np.int64)
    # What every link has saved up, since when, and how fast bytes flow over it.
    saved = credit.copy()
    saved_at = np.zeros(len(bandwidth), np.float64)
    flow = np.zeros(len(bandwidth), np.float64)
    # The transfers of every link as a list through the (slot, link) pairs.
    link_head = np.full(len(bandwidth), -1, np.int64)
    after = np.full(len(links), -1, np.int64)
    before = np.full(len(links), -1, np.int64)
    owner = np.empty(len(links), np.int64)
    for slot in range(slots):
        for at in range(link_first[slot], link_first[slot + 1]):
            owner[at] = slot
    times = np.empty(1024, np.float64)
    items = np.empty(1024, np.int64)
    heap = 0
    stack = np.empty(count + 1, np.int64)
    depth = 0
    done = 0
    for task in range(count):
        if waiting[task] == 0:
            stack[depth] = task
            depth += 1
    while True:
        # Everything that is ready and contends for nothing is finished at once.
        while depth > 0:
            depth -= 1
            task = stack[depth]
            if place[task] >= 0:
                if heap + 2 >= len(times):
                    times = np.concatenate((times, np.empty(len(times), np.float64)))
                    items = np.concatenate((items, np.empty(len(items), np.int64)))
                heap = _push(times, items, heap, ready[task], place[task] * 3 + _READY)
                continue
            end = ready[task] + work[task]
            finish[task] = end
            done += 1
            for at in range(first[task], first[task + 1]):
                other = successors[at]
                if end >= ready[other]:
                    ready[other] = end
                    released_by[other] = task
                waiting[other] -= 1
                if waiting[other] == 0:
                    stack[depth] = other
                    depth += 1
        if heap == 0:
            break
        now = times[0]
        slot, what = items[0] // 3, items[0] % 3
        heap = _pop(times, items, heap)
        if what == _MOVED and due[slot] != now:
            continue  # the transfer has been given another speed since
        if heap + 8 >= len(times):
            times = np.concatenate((times, np.empty(len(times), np.float64)))
            items = np.concatenate((items, np.empty(len(items), np.int64)))
        task = contending[slot]
        if what == _READY:
            queue = resource[slot]
            if queue >= 0 and free[queue] == 0:
                if tail[queue] >= 0:
                    queued[tail[queue]] = slot
                else:
                    head[queue] = slot
                tail[queue] = slot
                continue
            if queue >= 0:
                free[queue] -= 1
            begin[slot] = now
            heap = _push(times, items, heap, now + work[task], slot * 3 + _WORKED)
            continue
        moves = size[slot] > 0.0 and link_first[slot + 1] > link_first[slot]
        if what == _WORKED and moves:
            passed = np.inf
            for at in range(link_first[slot], link_first[slot + 1]):
                link = links[at]
                if credit[link] > 0.0:
                    _save(link, now, credit, bandwidth, flow, saved, saved_at)
                passed = min(passed, saved[link])
            passed = min(passed, size[slot])
            left[slot] = size[slot] - passed
            since[slot] = now
            for at in range(link_first[slot], link_first[slot + 1]):
                link = links[at]
                saved[link] -= passed
                users[link] += 1
                before[at] = -1
                after[at] = link_head[link]
                if link_head[link] >= 0:
                    before[link_head[link]] = at
                link_head[link] = at
        elif what == _MOVED:
            for at in range(link_first[slot], link_first[slot + 1]):
                link = links[at]
                users[link] -= 1
                if credit[link] > 0.0:
                    _save(link, now, credit, bandwidth, flow, saved, saved_at)
                    flow[link] -= speed[slot]
                if before[at] >= 0:
                    after[before[at]] = after[at]
                else:
                    link_head[link] = after[at]
                if after[at] >= 0:
                    before[after[at]] = before[at]
        if moves:
            # Whoever shares a link with this transfer now goes at another speed.
            for at in range(link_first[slot], link_first[slot + 1]):
                walk = link_head[links[at]]
                while walk >= 0:
                    other = owner[walk]
                    rate = _rate(other, link_first, links, bandwidth, users)
                    if rate != speed[other] or due[other] < 0.0:
                        for pair in range(link_first[other], link_first[other + 1]):
                            link = links[pair]
                            if credit[link] > 0.0:
                                _save(link, now, credit, bandwidth, flow, saved, saved_at)
                                flow[link] += rate - speed[other]
                        left[other] = max(left[other] - speed[other] * (now - since[other]), 0.0)
                        since[other] = now
                        speed[other] = rate
                        if rate > 0.0:
                            due[other] = now + left[other] / rate
                            if heap + 2 >= len(times):
                                times = np.concatenate((times, np.empty(len(times), np.float64)))
                                items = np.concatenate((items, np.empty(len(items), np.int64)))
                            heap = _push(times, items, heap, due[other], other * 3 + _MOVED)
                    walk = after[walk]
        if what == _WORKED and moves:
            continue
        due[slot] = -2.0
        finish[task] = now
        done += 1
        queue = resource[slot]
        if queue >= 0:
            if head[queue] >= 0:
                waiter = head[queue]
                head[queue] = queued[waiter]
                if head[queue] < 0:
                    tail[queue] = -1
                begin[waiter] = now
                released_by[contending[waiter]] = task
                until = now + work[contending[waiter]]
                heap = _push(times, items, heap, until, waiter * 3 + _WORKED)
            else:
                free[queue] += 1
        for at in range(first[task], first[task + 1]):
            other = successors[at]
            if now >= ready[other]:
                ready[other] = now
                released_by[other] = task
            waiting[other] -= 1
            if waiting[other] == 0:
                stack[depth] = other
                depth += 1
    return done
