"""Which device-side communications of different ranks are one and the same, and how sure that is.

The ladder: the identifier the profiler wrote (Comms Id); the sequence number within the group;
the order within the group, anchored at the profiled step. A rung is validated by the collective's
name, size and type; where windows are cut, the order is repaired by a longest common subsequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marey.stats.subsequences import match_longest_common
from marey.trace.rank.activity import Flags, Ints
from marey.trace.ranks.communications import Pool
from marey.trace.ranks.point_to_point import match_exchanges

METHODS = ("comms_id", "sequence", "order", "repaired", "peers")
COMMS_ID, SEQUENCE, ORDER, REPAIRED, PEERS = range(5)
# How far each rung can be trusted when everything agrees: identifiers are written by the library
# itself; order assumes that nothing was lost; a repair assumes that sizes tell calls apart.
RUNG_CONFIDENCE = (1.0, 0.98, 0.85, 0.6, 0.9)
# A rung whose members disagree on name or size this often is not describing the same calls.
LARGEST_DISAGREEMENT = 0.1
# Two windows longer than this are aligned by their ends only: the repair is quadratic.
LONGEST_REPAIR = 2_000


@dataclass(frozen=True)
class Matching:
    """For each row of a pool its item (-1: no partner), and how each item was found."""

    item: Ints
    method: Ints  # per item
    agrees: Flags  # per item: members agree on name, size and type


def match_pool(pool: Pool, varying: Flags) -> Matching:
    """Join the rows of all ranks; ``varying`` marks collectives whose size differs by rank."""
    item = np.full(len(pool), -1, np.int64)
    exchange = pool.is_exchange
    methods: list[Ints] = []
    count = 0
    token = _tokens(pool, varying)
    together = np.flatnonzero(~exchange)
    for place_of_group in _split(pool.group[together]):
        rows = together[place_of_group]
        keys, method = _match_group(pool, rows, token)
        chosen, place = np.unique(keys, return_inverse=True)
        item[rows] = count + place
        methods.append(_majority(method, place, len(chosen)))
        count += len(chosen)
    rows = np.flatnonzero(exchange)
    pairs = match_exchanges(pool, rows)
    item[rows] = np.where(pairs >= 0, pairs + count, -1)
    found = int(pairs.max(initial=-1)) + 1
    methods.append(np.full(found, PEERS, np.int64))
    return _partners_only(pool, Matching(item, np.concatenate(methods), _agreement(item, token)))


def _majority(method: Ints, place: Ints, count: int) -> Ints:
    """Return the weakest rung that any member of an item needed."""
    weakest = np.zeros(count, np.int64)
    np.maximum.at(weakest, place, method)
    return weakest


def _tokens(pool: Pool, varying: Flags) -> Ints:
    """Return one number for name, size and type: what the members of one call must share."""
    size = np.where(varying | pool.is_exchange, -1, pool.bytes)
    columns = np.stack([np.where(pool.is_exchange, -1, pool.collective), size, pool.dtype])
    return np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _match_group(pool: Pool, rows: Ints, token: Ints) -> tuple[Ints, Ints]:
    """Return keys that are equal for the same call, and the rung each row was matched by."""
    for rung, column in ((COMMS_ID, pool.comms_id), (SEQUENCE, pool.sequence)):
        if (column[rows] >= 0).all():
            key = _number_groups(pool.rank[rows], column[rows])
            if _disagreement(key, token[rows]) <= LARGEST_DISAGREEMENT:
                return key, np.full(len(rows), rung, np.int64)
    return _match_by_order(pool, rows, token)


def _number_groups(rank: Ints, number: Ints) -> Ints:
    """Return the number; a number that one rank uses several times becomes several."""
    order = np.lexsort((np.arange(len(rank)), number, rank))
    same = (rank[order][1:] == rank[order][:-1]) & (number[order][1:] == number[order][:-1])
    place = np.arange(len(order))
    first = np.maximum.accumulate(np.where(np.append(False, same), 0, place))
    again = np.empty(len(order), np.int64)
    again[order] = place - first
    return np.unique(np.stack([number, again]), axis=1, return_inverse=True)[1].reshape(-1)


def _disagreement(key: Ints, token: Ints) -> float:
    """Return the share of keys whose rows do not all carry the same token."""
    lowest = np.full(int(key.max(initial=0)) + 1, np.iinfo(np.int64).max)
    highest = np.full(len(lowest), -1)
    np.minimum.at(lowest, key, token)
    np.maximum.at(highest, key, token)
    return float((lowest < highest).mean()) if len(lowest) else 0.0


def _match_by_order(pool: Pool, rows: Ints, token: Ints) -> tuple[Ints, Ints]:
    """Match the n-th call of a step on every rank, if all made the same calls in it."""
    key = np.full(len(rows), -1, np.int64)
    method = np.full(len(rows), ORDER, np.int64)
    steps = pool.step[rows]
    used = 0
    for step in np.unique(steps):
        of_step = np.flatnonzero(steps == step)
        by_rank = _split(pool.rank[rows][of_step])
        longest = max(by_rank, key=len)
        wanted = token[rows][of_step[longest]]
        extra = used + len(longest)
        for mine in by_rank:
            have = token[rows][of_step[mine]]
            if len(have) == len(wanted) and np.array_equal(have, wanted):
                key[of_step[mine]] = used + np.arange(len(have))
                continue
            at = align(wanted, have)
            method[of_step[mine]] = REPAIRED
            alone = at < 0
            at[alone] = extra - used + np.arange(int(alone.sum()))
            extra += int(alone.sum())
            key[of_step[mine]] = used + at
        used = extra
    return key, method


def _split(rank: Ints) -> list[Ints]:
    order = np.argsort(rank, kind="stable")
    cuts = np.flatnonzero(np.diff(rank[order])) + 1
    return np.split(order, cuts)


def align(wanted: Ints, have: Ints) -> Ints:
    """Return for each of ``have`` its place in ``wanted`` by longest common subsequence, or -1."""
    head, tail = _common(wanted, have), 0
    rest_wanted, rest_have = wanted[head:], have[head:]
    tail = _common(rest_wanted[::-1], rest_have[::-1])
    at = np.full(len(have), -1, np.int64)
    at[:head] = np.arange(head)
    if tail:
        at[len(have) - tail :] = len(wanted) - tail + np.arange(tail)
    middle_wanted = wanted[head : len(wanted) - tail]
    middle_have = have[head : len(have) - tail]
    if len(middle_wanted) and len(middle_have) and len(middle_wanted) <= LONGEST_REPAIR:
        found = match_longest_common(middle_wanted, middle_have[:LONGEST_REPAIR])
        kept = np.flatnonzero(found >= 0)
        at[head + kept] = head + found[kept]
    return at


def _common(a: Ints, b: Ints) -> int:
    """Return the length of the common beginning."""
    size = min(len(a), len(b))
    different = np.flatnonzero(a[:size] != b[:size])
    return int(different[0]) if len(different) else size


def _agreement(item: Ints, token: Ints) -> Flags:
    joined = item >= 0
    count = int(item.max(initial=-1)) + 1
    lowest = np.full(count, np.iinfo(np.int64).max)
    highest = np.full(count, -1)
    np.minimum.at(lowest, item[joined], token[joined])
    np.maximum.at(highest, item[joined], token[joined])
    agrees: Flags = lowest == highest
    return agrees


def _partners_only(pool: Pool, matching: Matching) -> Matching:
    """Drop items that only one rank took part in: nothing can be said about them across ranks."""
    joined = matching.item >= 0
    size = np.bincount(matching.item[joined], minlength=len(matching.method))
    kept = size >= 2
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    item = np.where(joined, np.append(number, -1)[matching.item], -1)
    return Matching(item, matching.method[kept], matching.agrees[kept])
