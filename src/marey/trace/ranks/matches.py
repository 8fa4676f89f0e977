"""Matched communications as tables: who arrived last, who waited, how long the transfer took."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from marey.model.training.symbols import Symbols
from marey.trace.rank.activity import Floats, Ints
from marey.trace.ranks.clocks import apply_clock
from marey.trace.ranks.collectives import METHODS, PEERS, RUNG_CONFIDENCE, Matching
from marey.trace.ranks.communications import Pool
from marey.trace.results import ITEMS, MEMBERS, Clocks, Matches

# Members that disagree on size or type may still be one call, but half as surely.
DISAGREEMENT_FACTOR = 0.5
NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
}


def on_run_clock(pool: Pool, clocks: Clocks) -> tuple[Ints, Ints]:
    """Return starts and ends of every row on the run's clock."""
    at = np.searchsorted(np.array(clocks.ranks), pool.rank)
    offset = np.array(clocks.offset_us or (0.0,))[at]
    drift = np.array(clocks.drift_ppm or (0.0,))[at]
    start = apply_clock(pool.start_ns, offset, drift, clocks.origin_ns)
    return start, apply_clock(pool.end_ns, offset, drift, clocks.origin_ns)


def tabulate_matches(pool: Pool, matching: Matching, clocks: Clocks, symbols: Symbols) -> Matches:
    """Return the items and members of a matching, on the run's clock."""
    start, end = on_run_clock(pool, clocks)
    items = _Items(pool, matching, start, end)
    confidence = items.confidence()
    names = [METHODS[m] for m in matching.method.tolist()]
    usual = Counter(names).most_common(1)
    return Matches(
        items=_item_table(items, clocks, symbols, confidence),
        members=_member_table(pool, item=matching.item, items=items, start=start, end=end),
        matched=len(matching.method),
        unmatched=int((matching.item < 0).sum()),
        method=usual[0][0] if usual else "none",
        confidence=round(float(confidence.mean()), 4) if len(confidence) else 0.0,
    )


class _Items:
    """Per item: members, arrivals and ends."""

    def __init__(self, pool: Pool, matching: Matching, start: Ints, end: Ints) -> None:
        self.pool, self.matching = pool, matching
        count = len(matching.method)
        self.rows = np.flatnonzero(matching.item >= 0)
        of = matching.item[self.rows]
        self.size = np.bincount(of, minlength=count)
        # By arrival within an item, so that the last row of an item is the last to arrive.
        order = np.lexsort((start[self.rows], of))
        self.sorted = self.rows[order]
        self.last_at = np.cumsum(self.size) - 1
        self.first_at = self.last_at - self.size + 1
        self.last_row = self.sorted[self.last_at]
        self.first_ns = start[self.sorted[self.first_at]]
        self.last_ns = start[self.last_row]
        self.second_ns = start[self.sorted[np.maximum(self.last_at - 1, 0)]]
        self.end_ns = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(self.end_ns, of, end[self.rows])
        self.by_arrival = np.argsort(self.last_ns, kind="stable")
        self.exchange = matching.method == PEERS

    def expected(self) -> Ints:
        """Return members that a group has, or two for an exchange."""
        sizes = np.array([len(g.ranks) for g in self.pool.groups] or [0])
        group = sizes[self.pool.group[self.last_row]] if len(self.last_row) else self.size
        return np.where(self.exchange, 2, np.maximum(group, self.size))

    def confidence(self) -> Floats:
        """Return the rung's own, less what disagrees and what is missing of the traced ranks."""
        traced = np.minimum(self.expected(), len(self.pool.ranks))
        rung = np.array(RUNG_CONFIDENCE)[self.matching.method]
        agree = np.where(self.matching.agrees, 1.0, DISAGREEMENT_FACTOR)
        return rung * agree * self.size / np.maximum(traced, 1)


def _item_table(items: _Items, clocks: Clocks, symbols: Symbols, confidence: Floats) -> pa.Table:
    order, pool = items.by_arrival, items.pool
    last = items.last_row[order]
    lead_us = (items.last_ns - items.second_ns)[order] / 1e3
    return pa.table(
        {
            "item": order,
            "name": _texts(pool.collective[last], items.exchange[order], symbols),
            "group": [pool.groups[g].name for g in pool.group[last].tolist()],
            "point_to_point": items.exchange[order],
            "bytes": pool.bytes[last],
            "dtype": [symbols.text(code) for code in pool.dtype[last].tolist()],
            "step": pool.step[last],
            "participants": items.size[order],
            "expected": items.expected()[order],
            "first_arrival_ns": items.first_ns[order],
            "last_arrival_ns": items.last_ns[order],
            "end_ns": items.end_ns[order],
            "last_rank": pool.rank[last],
            "certain": lead_us > clocks.error_us,
            "skew_us": (items.last_ns - items.first_ns)[order] / 1e3,
            "transfer_us": np.maximum(items.end_ns - items.last_ns, 0)[order] / 1e3,
            "method": [METHODS[m] for m in items.matching.method[order].tolist()],
            "confidence": confidence[order],
        }
    ).cast(ITEMS)


def _texts(codes: Ints, exchange: np.ndarray, symbols: Symbols) -> list[str]:
    known: dict[int, str] = {}
    for code in np.unique(codes).tolist():
        text = symbols.text(code)
        known[code] = NAMES.get(text, text) or "unknown"
    pairs = zip(codes.tolist(), exchange.tolist(), strict=True)
    return ["send_recv" if is_exchange else known[code] for code, is_exchange in pairs]


def _member_table(pool: Pool, *, item: Ints, items: _Items, start: Ints, end: Ints) -> pa.Table:
    matched = item >= 0
    last = np.where(matched, np.append(items.last_ns, 0)[item], start)
    begun = np.maximum(last, start)
    wait = np.minimum(begun, end) - start
    launched = np.where(pool.launch_ns >= 0, (pool.start_ns - pool.launch_ns) / 1e3, -1.0)
    return pa.table(
        {
            "item": item,
            "rank": pool.rank,
            "row": pool.row,
            "step": pool.step,
            "start_ns": start,
            "end_ns": end,
            "launch_us": launched,
            "wait_us": np.where(matched, wait, 0) / 1e3,
            "transfer_us": (end - start - np.where(matched, wait, 0)) / 1e3,
        }
    ).cast(MEMBERS)
