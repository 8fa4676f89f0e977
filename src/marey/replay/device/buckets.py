"""Gradients of a run on devices, filled into other buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import DeviceNode
from marey.replay.device.device_nodes import Flags, Floats, Ints
from marey.replay.device.device_run import BucketSizes, DeviceRun, Gradients
from marey.replay.device.gradient_communications import (
    find_gradient_communications,
    fit_sync_costs,
    number_groups,
)
from marey.replay.device.node_columns import NodeColumns, close_columns, open_columns

# Gradients and buckets must hold the same bytes, but for padding.
SAME_BYTES = 0.05


@dataclass(frozen=True)
class Bucket:
    """Gradients moved together: on which rank and in which step, its place there, its bytes."""

    rank: int
    step: int
    number: int
    bytes: float
    # The kernel that makes its last gradient ready.
    node: int


def read_units(run: DeviceRun) -> Gradients:
    """Return the units that fill buckets: gradients, or recorded buckets where sizes are unknown.

    Refuses a run whose trace does not say how many bytes it brings together.
    """
    nodes = run.nodes
    chosen = find_gradient_communications(nodes)
    if not chosen.any():
        raise InvalidInput("the trace shows no gradients being brought together")
    known = run.gradients
    if known.bucket_bytes:
        return known
    if (nodes.bytes[chosen] <= 0).any():
        raise InvalidInput("the trace does not say how many bytes each collective moves")
    if len(known.node) and _is_whole(run, chosen, known):
        return known
    return _take_buckets(run, chosen)


def _is_whole(run: DeviceRun, chosen: Flags, known: Gradients) -> bool:
    """Return whether the gradients of the inner steps are all that is brought together in them."""
    nodes = run.nodes
    steps = nodes.steps[1:-1] if len(nodes.steps) > 2 else nodes.steps
    width = np.maximum(nodes.item_bytes, 1)
    talks = chosen & np.isin(nodes.step, steps)
    moved = float((nodes.bytes[talks] / width[talks]).sum())
    own = np.isin(known.step, steps)
    filled = float((known.bytes[own] / np.maximum(known.item_bytes[own], 1)).sum())
    return abs(filled - moved) <= SAME_BYTES * moved


def _take_buckets(run: DeviceRun, chosen: Flags) -> Gradients:
    """Return the recorded buckets, each ready with the last kernel launched before it."""
    nodes = run.nodes
    sheet = open_columns(run)
    calls = sheet.find_calls()
    at = np.where(calls >= 0, sheet.floats("place")[calls], sheet.floats("place"))
    talks = np.flatnonzero(chosen)
    talks = talks[np.lexsort((at[talks], nodes.step[talks], nodes.rank[talks]))]
    made_by = np.full(len(talks), -1, np.int64)
    for rank in np.unique(nodes.rank[talks]).tolist():
        own = np.flatnonzero(nodes.computes & (nodes.rank == rank))
        own = own[np.argsort(at[own], kind="stable")]
        mine = np.flatnonzero(nodes.rank[talks] == rank)
        before = np.searchsorted(at[own], at[talks[mine]], side="right") - 1
        made_by[mine] = np.where(before >= 0, own[before], -1)
    talks, made_by = talks[made_by >= 0], made_by[made_by >= 0]
    sizes = nodes.bytes[talks]
    return Gradients(
        rank=nodes.rank[talks],
        step=nodes.step[talks],
        node=made_by,
        bytes=sizes,
        item_bytes=np.maximum(nodes.item_bytes[talks], 1),
        bucket_bytes=int(sizes.max(initial=0)),
    )


def fill_buckets(units: Gradients, order: Floats, sizes: BucketSizes) -> list[Bucket]:
    """Fill buckets on every rank with gradients as they become ready, closing each at its size."""
    place = np.lexsort((order[units.node], units.step, units.rank))
    found: list[Bucket] = []
    key, filled, count = (-1, -1), 0.0, 0
    last = -1

    def close() -> None:
        nonlocal filled, count
        if filled:
            found.append(Bucket(*key, count, filled, last))
            filled, count = 0.0, count + 1

    for unit in place.tolist():
        here = (int(units.rank[unit]), int(units.step[unit]))
        if here != key:
            close()
            key, count = here, 0
        filled += float(units.bytes[unit])
        last = int(units.node[unit])
        limit = sizes.first if sizes.first is not None and count == 0 else sizes.usual
        if filled >= limit:
            close()
    close()
    return [part for bucket in found for part in _cut(bucket, sizes.partition)]


def _cut(bucket: Bucket, largest: float | None) -> list[Bucket]:
    """Return a bucket in equal parts, none larger than a partition."""
    parts = 1 if largest is None else max(int(np.ceil(bucket.bytes / largest)), 1)
    step = bucket.bytes / parts
    # Parts of one bucket are numbered between it and the next.
    return [replace(bucket, bytes=step, number=bucket.number * (1 << 20) + n) for n in range(parts)]


def rebucket(run: DeviceRun, sizes: BucketSizes) -> DeviceRun:
    """Return the run with its gradients in other buckets, posted as these become ready."""
    units = read_units(run)
    if units.bucket_bytes and sizes.usual < units.bucket_bytes:
        raise InvalidInput(
            "the trace has no shapes of gradients, so only buckets of at least "
            f"{units.bucket_bytes / (1 << 20):.3g} MB, the largest recorded, can be told; record "
            "with record_shapes=True"
        )
    chosen = find_gradient_communications(run.nodes)
    sheet = open_columns(replace(run, gradients=units))
    order = sheet.find_positions().astype(np.float64)
    buckets = fill_buckets(units, order, sizes)
    made = _Buckets(run, sheet, chosen, buckets)
    return close_columns(replace(run, buckets=sizes), made.put_in())


class _Buckets:
    """Puts buckets into a sheet in place of the communications recorded for them."""

    def __init__(
        self, run: DeviceRun, sheet: NodeColumns, chosen: Flags, buckets: Sequence[Bucket]
    ) -> None:
        self.sheet, self.chosen = sheet, chosen
        nodes = run.nodes
        self.calls = sheet.find_calls()
        groups = number_groups(nodes)
        self.costs = fit_sync_costs(run, chosen)
        # The recorded communication of the same rank and step that a bucket is made like.
        talks = np.flatnonzero(chosen)
        keys = {(int(nodes.rank[t]), int(nodes.step[t])): int(t) for t in talks.tolist()}
        kept = [b for b in buckets if (b.rank, b.step) in keys]
        self.like = np.array([keys[b.rank, b.step] for b in kept], np.int64)
        self.group = groups[self.like]
        self.node = np.array([b.node for b in kept], np.int64)
        width = np.maximum(nodes.item_bytes[self.like], 1)
        scale = width / _unit_width(sheet.gradients)
        self.size = np.array([b.bytes for b in kept]) * scale
        self.number = np.array([b.number for b in kept], np.int64)

    def put_in(self) -> NodeColumns:
        """Return the sheet with the buckets in place of what was recorded."""
        sheet = self.sheet
        talks = sheet.take(self.like)
        start = sheet.floats("start_ms")
        ready, turn = self._after(self.node)
        talks |= {
            "bytes": np.rint(self.size).astype(np.int64),
            "item": self._items(),
            "work": self.costs.take(self.group, self.size),
            "other_work": self.costs.explain_otherwise().take(self.group, self.size),
            "delay": np.full(len(self.like), np.median(sheet.floats("delay")[self.chosen])),
            "loading": np.zeros(len(self.like)),
            "meets": self.group >= 0,
            "place": ready,
            "turn": turn,
            "start_ms": start[self.node],
            "end_ms": start[self.node],
        }
        after = self._successors()
        sheet, numbers = sheet.add(talks)
        sheet = sheet.wait(self.node, numbers)
        sheet = self._launch(sheet, numbers)
        sheet = self._hold(sheet, numbers, after)
        gone = np.zeros(sheet.count, bool)
        gone[: len(self.chosen)] = self.chosen | self._dropped_calls()
        return sheet.keep(~gone)

    def _after(self, nodes: Ints) -> tuple[Floats, Floats]:
        """Return the place right after nodes, in the order of the buckets."""
        place, turn = self.sheet.floats("place")[nodes], self.sheet.floats("turn")[nodes]
        return place, turn + 1e-6 * (1 + np.arange(len(nodes)) / max(len(nodes), 1))

    def _items(self) -> Ints:
        """Return one number for the same bucket on all ranks of a group, -1 without partners."""
        step = self.sheet.ints("step")[self.like]
        key = np.stack([self.group, step, self.number])
        _, same = np.unique(key, axis=1, return_inverse=True)
        first = int(self.sheet.ints("item").max(initial=-1)) + 1
        return np.where(self.group >= 0, first + same.reshape(-1), -1)

    def _launch(self, sheet: NodeColumns, numbers: Ints) -> NodeColumns:
        """Put in the calls that launch the buckets, right after those of their last kernels."""
        before = self.calls[self.node]
        recorded = np.unique(self.calls[self.chosen])
        recorded = recorded[recorded >= 0]
        if not len(recorded) or (before < 0).any():
            return sheet
        calls = sheet.take(before)
        calls["place"], calls["turn"] = self._after(before)
        calls["work"] = np.full(len(before), np.median(sheet.floats("work")[recorded]))
        calls["other_work"] = calls["work"]
        calls["loading"] = np.zeros(len(before))
        sheet, made = sheet.add(calls)
        return sheet.wait(made, numbers)

    def _successors(self) -> dict[tuple[int, int], list[int]]:
        """Return the nodes that wait for the last gradient, by rank and step."""
        sheet = self.sheet
        rank, step = sheet.ints("rank"), sheet.ints("step")
        start = sheet.floats("start_ms")
        last: dict[tuple[int, int], float] = {}
        for at in self.node.tolist():
            key = (int(rank[at]), int(step[at]))
            last[key] = max(last.get(key, -np.inf), float(start[at]))
        found: dict[tuple[int, int], set[int]] = {}
        waits = self.chosen[sheet.sources] & ~self.chosen[sheet.targets]
        for source, target in zip(
            sheet.sources[waits].tolist(), sheet.targets[waits].tolist(), strict=True
        ):
            key = (int(rank[source]), int(step[source]))
            if start[target] > last.get(key, np.inf):
                found.setdefault(key, set()).add(target)
        return {key: sorted(targets) for key, targets in found.items()}

    def _hold(
        self, sheet: NodeColumns, numbers: Ints, after: dict[tuple[int, int], list[int]]
    ) -> NodeColumns:
        """Let what waited for the recorded communications wait for every bucket."""
        rank, step = sheet.ints("rank"), sheet.ints("step")
        pairs = [
            (at, target)
            for at in numbers.tolist()
            for target in after.get((int(rank[at]), int(step[at])), [])
        ]
        made = np.array(pairs, np.int64).reshape(-1, 2)
        return sheet.wait(made[:, 0], made[:, 1])

    def _dropped_calls(self) -> Flags:
        """Return which calls launched nothing but the recorded communications."""
        sheet = self.sheet
        launches = sheet.on_host[sheet.sources] & ~sheet.on_host[sheet.targets]
        others = np.zeros(sheet.count, bool)
        others[sheet.sources[launches & ~self.chosen[sheet.targets]]] = True
        own = np.zeros(sheet.count, bool)
        calls = self.calls[self.chosen]
        own[calls[calls >= 0]] = True
        # A call that holds the host has a return, which needs it.
        held = np.zeros(sheet.count, bool)
        held[sheet.targets[sheet.on_host[sheet.targets]]] = True
        calling: Flags = sheet.ints("kind") == DeviceNode.CALL
        dropped: Flags = own & ~others & ~held & calling
        return dropped


def _unit_width(units: Gradients) -> float:
    """Return the bytes of an element as gradients are made."""
    return float(np.median(units.item_bytes)) if len(units.item_bytes) else 1.0
