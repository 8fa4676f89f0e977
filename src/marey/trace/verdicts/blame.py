"""Who made whom wait, propagated to what started it, in GPU-seconds.

After "Identifying the root causes of wait states in large-scale parallel applications" (Böhme et
al.): a rank that waits at a meeting waits for its last arrival. What that rank did longer than
the waiting ones since they were last together is the cause; where it waited itself, the blame moves
on to the meeting it waited at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.stats.compiled import njit
from marey.trace.graph.cost_graph import DELAY_NAMES, Delay, Flags, Floats, Ints, NodeKind
from marey.trace.results import BLAME
from marey.trace.verdicts.situation import Situation

CAUSES = ("compute", *DELAY_NAMES, "transfer")
COMPUTE, TRANSFER, WAITING = 0, len(DELAY_NAMES) + 1, len(DELAY_NAMES) + 2
# A chain of waits longer than this is not followed: what is left goes to its last culprit.
LONGEST_CHAIN = 16
# Nor is a cause that explains less than this share of a wait.
SMALLEST_LINK = 1e-3
# Blame of less than this share of all waiting is left out of the table.
SMALLEST_SHARE = 1e-4


def blame_table(situation: Situation) -> pa.Table:
    """Return GPU-seconds that each rank made each other one wait, by cause and step."""
    graph = situation.graph
    arrivals = np.flatnonzero((graph.kind == NodeKind.ARRIVAL) & (graph.item >= 0))
    if not len(arrivals):
        return BLAME.empty_table()
    members = _members(situation, arrivals)
    error_ns = situation.clocks.error_us * 1e3
    order, first, arrived, done, previous, waited_most, item = members
    walk = (order, first, arrived, done, previous, waited_most, item, error_ns)
    shares = np.empty((4 * len(first), 4))
    count = _follow(*walk, shares)
    if count > len(shares):
        shares = np.empty((count, 4))
        _follow(*walk, shares)
    shares = shares[:count]
    records = _by_victim(shares, order=order, first=first, arrived=arrived, error_ns=error_ns)
    return _tabulate(situation, arrivals, records)


def _members(situation: Situation, arrivals: Ints) -> tuple[NDArray[Any], ...]:
    """Return arrays for the walk: members by item, and what each rank has done until it arrived."""
    graph = situation.graph
    finish = graph.finish(graph.work_ns, graph.idle_ns)
    if not graph.chained:
        finish = finish + np.searchsorted(situation.steps, graph.step) * float(finish.max() + 1)
    arrived = finish[arrivals]
    done = _measure_done_until_arrival(situation, arrivals, finish)
    item, rank = graph.item[arrivals], graph.rank[arrivals]
    order = np.lexsort((arrived, item))
    first = np.searchsorted(item[order], np.arange(int(item.max()) + 2))
    syncs = _find_synchronising(situation, len(first) - 1)
    previous = _rows_at_last_sync(
        item, rank=rank, arrived=arrived, first=first, order=order, syncs=syncs
    )
    waited_most = _longest_wait(rank, arrived=arrived, first=first, order=order, previous=previous)
    return order, first, arrived, done, previous, waited_most, item


def _measure_done_until_arrival(situation: Situation, arrivals: Ints, finish: Floats) -> Floats:
    """Return for each arrival what its rank had spent on each cause, and on waiting, until then."""
    graph = situation.graph
    owned = np.flatnonzero(graph.rank >= 0)
    order = owned[
        np.lexsort((graph.kind[owned] == NodeKind.ARRIVAL, finish[owned], graph.rank[owned]))
    ]
    spent = np.zeros((graph.dag.count, len(CAUSES) + 1))
    compute, transfer = graph.kind == NodeKind.COMPUTE, graph.kind == NodeKind.TRANSFER
    spent[compute, COMPUTE] = graph.work_ns[compute]
    spent[transfer, TRANSFER] = graph.work_ns[transfer]
    spent[:, 1 : 1 + len(Delay)] = graph.idle_ns
    last = np.zeros(int(graph.item.max()) + 1)
    np.maximum.at(last, graph.item[arrivals], finish[arrivals])
    joined = np.flatnonzero(transfer & (graph.item >= 0))
    began = np.full(graph.dag.count, np.nan)
    began[joined] = last[graph.item[joined]]
    key = graph.rank * (int(graph.item.max()) + 1) + graph.item
    place = np.argsort(key[arrivals], kind="stable")
    at = np.searchsorted(key[arrivals][place], key[joined])
    at = arrivals[place[np.minimum(at, len(place) - 1)]]
    spent[joined, WAITING] = np.maximum(began[joined] - finish[at], 0)
    total = np.cumsum(spent[order], axis=0)
    # Each rank counts from its own beginning.
    fresh = np.append(True, np.diff(graph.rank[order]) != 0)
    begun = np.flatnonzero(fresh)
    total -= (total - spent[order])[np.repeat(begun, np.diff(np.append(begun, len(order))))]
    full = np.zeros_like(spent)
    full[order] = total
    return full[arrivals]


def _find_synchronising(situation: Situation, count: int) -> Flags:
    """Find the meetings that compute waited for on most members; others only run beside it."""
    graph = situation.graph
    after = np.repeat(np.arange(graph.dag.count), np.diff(graph.dag.first))
    before = graph.dag.predecessors
    woke = (graph.kind[before] == NodeKind.TRANSFER) & (graph.kind[after] == NodeKind.COMPUTE)
    woke &= graph.item[before] >= 0
    waking = np.bincount(graph.item[before[woke]], minlength=count)
    transfers = (graph.kind == NodeKind.TRANSFER) & (graph.item >= 0)
    members = np.bincount(graph.item[transfers], minlength=count)
    flags: Flags = 2 * waking >= members
    return flags


def _rows_at_last_sync(
    item: Ints, *, rank: Ints, arrived: Floats, first: Ints, order: Ints, syncs: Flags
) -> Ints:
    """Return for each arrival the same rank's arrival where all members were last known to be
    together.
    """
    rng = np.random.default_rng(5)
    code = rng.integers(1, 2**62, int(rank.max()) + 1, dtype=np.int64)
    team = np.zeros(len(first) - 1, np.int64)
    np.add.at(team, item, code[rank])
    earliest, latest = arrived[order[first[:-1]]], arrived[order[first[1:] - 1]]
    by_team = np.lexsort((latest, team))
    before = _last_complete(by_team, team, earliest, latest, syncs)
    # Teams have the same ranks, so a rank has the same place among them in every meeting.
    by_rank = np.lexsort((rank, item))
    place = np.empty(len(item), np.int64)
    place[by_rank] = np.arange(len(item)) - first[item[by_rank]]
    known = before[item] >= 0
    previous = np.full(len(item), -1, np.int64)
    previous[known] = by_rank[first[before[item[known]]] + place[known]]
    return previous


@njit(cache=True, nogil=True, small=2_000)
def _last_complete(
    by_team: Ints, team: Ints, earliest: Floats, latest: Floats, syncs: Flags
) -> Ints:
    """Return the latest synchronising meeting of the same ranks that was over when
    this one began.
    """
    before = np.full(len(team), -1, np.int64)
    for at in range(len(by_team)):
        meeting = by_team[at]
        back = at - 1
        while back >= 0 and team[by_team[back]] == team[meeting]:
            if syncs[by_team[back]] and latest[by_team[back]] <= earliest[meeting]:
                before[meeting] = by_team[back]
                break
            back -= 1
    return before


def _longest_wait(rank: Ints, *, arrived: Floats, first: Ints, order: Ints, previous: Ints) -> Ints:
    """Return for each arrival the one of its rank, since the last synchronisation, that waited
    most.
    """
    last = np.repeat(arrived[order[first[1:] - 1]], np.diff(first))
    wait = np.zeros(len(arrived))
    wait[order] = last - arrived[order]
    by = np.lexsort((arrived, rank))
    found: Ints = _window_maximum(by, rank, wait, previous)
    return found


@njit(cache=True, nogil=True, small=2_000)
def _window_maximum(by: Ints, rank: Ints, wait: Floats, previous: Ints) -> Ints:
    found = np.full(len(rank), -1, np.int64)
    place = np.empty(len(rank), np.int64)
    for at in range(len(by)):
        place[by[at]] = at
    for at in range(len(by)):
        row = by[at]
        back = at - 1
        seen = 0
        # Meetings further back than this hardly ever decide an arrival.
        while back >= 0 and rank[by[back]] == rank[row] and seen < 64:
            other = by[back]
            if previous[row] >= 0 and place[previous[row]] > back:
                break
            if found[row] < 0 or wait[other] > wait[found[row]]:
                found[row] = other
            back -= 1
            seen += 1
    return found


@njit(cache=True, nogil=True)
def _follow(
    order: Ints,
    first: Ints,
    arrived: Floats,
    done: Floats,
    previous: Ints,
    waited_most: Ints,
    item: Ints,
    error_ns: float,
    found: Floats,
) -> int:
    """Fill in shares of waiting (meeting, culprit's arrival, cause, share); how many there are."""
    count = 0
    causes = done.shape[1] - 1
    excess = np.empty(causes + 1)
    for meeting in range(len(first) - 1):
        row = order[first[meeting + 1] - 1]
        if arrived[row] - arrived[order[first[meeting]]] <= error_ns:
            continue
        left, at = 1.0, meeting
        for _ in range(LONGEST_CHAIN):
            total = _excess(order, first[at], first[at + 1], done, previous, row, excess)
            if total <= 0:
                break
            # What the excess does not explain is nobody's.
            total = max(total, arrived[row] - arrived[order[first[at]]])
            for cause in range(causes):
                share = left * excess[cause] / total
                if share > SMALLEST_LINK:
                    if count < len(found):
                        found[count, 0] = meeting
                        found[count, 1] = row
                        found[count, 2] = cause
                        found[count, 3] = share
                    count += 1
            blocked = waited_most[row]
            left *= excess[causes] / total
            if blocked < 0 or left < 10 * SMALLEST_LINK:
                break
            at = item[blocked]
            row = order[first[at + 1] - 1]
            if row == blocked:
                break
    return count


@njit(cache=True, nogil=True)
def _excess(
    order: Ints, lo: int, hi: int, done: Floats, previous: Ints, row: int, excess: Floats
) -> float:
    """Fill in what the last to arrive did more than the mean of the others; their sum."""
    total = 0.0
    for cause in range(len(excess)):
        others = 0.0
        for place in range(lo, hi - 1):
            one = order[place]
            others += done[one, cause]
            if previous[one] >= 0:
                others -= done[previous[one], cause]
        mine = done[row, cause] - others / max(hi - lo - 1, 1)
        if previous[row] >= 0:
            mine -= done[previous[row], cause]
        excess[cause] = max(mine, 0.0)
        total += excess[cause]
    return total


def _by_victim(
    shares: Floats, *, order: Ints, first: Ints, arrived: Floats, error_ns: float
) -> tuple[NDArray[Any], ...]:
    """Return culprit's and victim's arrivals, cause and cost, for every rank that waited."""
    meeting, culprit, cause = shares[:, :3].astype(np.int64).T
    lo, hi = first[meeting], first[meeting + 1] - 1
    count = hi - lo
    record = np.repeat(np.arange(len(meeting)), count)
    place = np.arange(len(record)) - np.repeat(np.cumsum(count) - count, count)
    victim = order[lo[record] + place]
    wait = arrived[order[hi[record]]] - arrived[victim]
    kept = wait > error_ns
    record, victim, wait = record[kept], victim[kept], wait[kept]
    return culprit[record], victim, cause[record], wait * shares[record, 3]


def _tabulate(situation: Situation, arrivals: Ints, records: tuple[NDArray[Any], ...]) -> pa.Table:
    culprit, victim, cause, cost = records
    if not len(culprit):
        return BLAME.empty_table()
    graph = situation.graph
    rank = graph.rank[arrivals]
    step = graph.step[arrivals][victim]
    key = np.stack([rank[culprit], rank[victim], step, cause.astype(np.int64)])
    rows, place = np.unique(key, axis=1, return_inverse=True)
    seconds = np.bincount(place.reshape(-1), weights=cost) / 1e9
    kept = (rows[0] != rows[1]) & (seconds >= SMALLEST_SHARE * seconds.sum())
    order = np.flatnonzero(kept)[np.argsort(-seconds[kept], kind="stable")]
    rows, seconds = rows[:, order], seconds[order]
    operator = _operators(situation, rows)
    return pa.table(
        {
            "culprit": rows[0],
            "victim": rows[1],
            "step": rows[2],
            "cause": [CAUSES[c] for c in rows[3].tolist()],
            "operator": operator,
            "gpu_seconds": seconds,
        }
    ).cast(BLAME)


def _operators(situation: Situation, rows: Ints) -> list[str]:
    """Return the kernel in which each culprit exceeds the others most, for compute."""
    from marey.trace.verdicts.compute import slowest_operators

    known: dict[int, str] = {}
    texts = []
    for culprit, cause in zip(rows[0].tolist(), rows[3].tolist(), strict=True):
        if cause != COMPUTE:
            texts.append("")
            continue
        if culprit not in known:
            place = situation.rank_place(np.array([culprit]))
            known[culprit] = next(iter(slowest_operators(situation, place, 1)), "")
        texts.append(known[culprit])
    return texts
