"""Entries on their way: what each must send, under which revision, and whether it arrived.

VictoriaMetrics keeps every sample it is sent, also a second one of the same moment. So a sample
that may be there already is looked up first: the same value is not sent again, another value is
sent under the next revision, and readers take the highest revision of a moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.samples import SampleBatch
from marey.store.victoria import labels
from marey.store.victoria.delivery.spill import Place
from marey.store.victoria.grids import SeriesPart, join_column, make_keys, take_rows
from marey.store.victoria.server_queries import Scope

ABSENT = -1
Revisions = NDArray[np.int64]


class DeliveryStage(StrEnum):
    """How far a entry has come."""

    WAITING = "waiting"
    # A write failed half-way, or an earlier process may have sent it: look before sending.
    DOUBTFUL = "doubtful"
    SENT = "sent"
    CONFIRMED = "confirmed"


@dataclass(slots=True)
class QueueEntry:
    """One batch between the spill and the server."""

    place: Place
    stage: DeliveryStage = DeliveryStage.WAITING
    batch: SampleBatch | None = None
    # Of metrics (and of rows under "") the revision of each row; None: all of them the first.
    plan: dict[str, Revisions] | None = None
    sent_s: float = 0.0
    vitals: Any = None
    # Rounds in which something was still missing, or that were refused.
    rounds: int = 0

    @property
    def scope(self) -> Scope:
        """Whose samples these are."""
        return Scope(self.place.cluster, self.place.kind)

    def overlaps(self, scope: Scope, from_ms: int, to_ms: int) -> bool:
        """Return whether it may hold samples of this scope and span."""
        place = self.place
        return self.scope == scope and place.from_ms < to_ms and place.to_ms > from_ms


@dataclass(slots=True)
class KnownRevision:
    """What is at the keys of a batch: revision (-1: nothing) and value, and who held it."""

    revisions: dict[str, Revisions] = field(default_factory=dict)
    values: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    versions: Revisions = field(default_factory=lambda: np.zeros(0, np.int64))
    holders: NDArray[np.object_] = field(default_factory=lambda: np.zeros(0, object))


def collect_known(batch: SampleBatch, parts: Iterable[SeriesPart]) -> KnownRevision:
    """Return the server's values at the moments of a batch that is sorted by key."""
    many = len(batch)
    known = KnownRevision(
        {name: np.full(many, ABSENT, np.int64) for name in batch.columns},
        {name: np.full(many, np.nan, np.float32) for name in batch.columns},
        np.full(many, ABSENT, np.int64),
        np.full(many, None, object),
    )
    keys = make_keys(batch.entity, batch.time_ms)
    numbers = {name: number for number, name in enumerate(batch.entities)}
    rows_metric = labels.get_rows_name(batch.kind).removeprefix(labels.PREFIX)
    by_metric: dict[str, list[SeriesPart]] = {}
    for part in parts:
        if part.entity not in numbers:
            continue
        if part.metric == rows_metric:
            _record_rows(known, part, numbers[part.entity], keys)
        elif part.metric in batch.columns:
            by_metric.setdefault(part.metric, []).append(part)
    for metric, own in by_metric.items():
        column = join_column(own, numbers)
        at, there = _find_keys(column.keys, keys)
        known.revisions[metric][at] = column.revisions[there]
        known.values[metric][at] = column.values[there].astype(np.float32)
    return known


def _record_rows(
    known: KnownRevision, part: SeriesPart, number: int, keys: NDArray[np.int64]
) -> None:
    codes = np.full(len(part.time_ms), number, np.int32)
    at, there = _find_keys(make_keys(codes, part.time_ms), keys)
    versions = part.values[there].astype(np.int64)
    # The same series may hold a moment twice: the greatest counts, whatever the order.
    order = np.argsort(versions, kind="stable")
    at, versions = at[order], versions[order]
    newer = versions > known.versions[at]
    known.holders[at[newer]] = part.workload
    np.maximum.at(known.versions, at, versions)


def _find_keys(have: NDArray[np.int64], keys: NDArray[np.int64]) -> tuple[Any, Any]:
    """Return where in the sorted ``keys`` each of ``have`` lies, and which of ``have`` do."""
    at = np.searchsorted(keys, have)
    inside = at < len(keys)
    inside[inside] = keys[at[inside]] == have[inside]
    return at[inside], inside


def add_earlier(known: KnownRevision, batch: SampleBatch, earlier: Sequence[QueueEntry]) -> None:
    """Count in what is on its way and need not be visible yet; the batches must be loaded."""
    keys = make_keys(batch.entity, batch.time_ms)
    numbers = {name: number for number, name in enumerate(batch.entities)}
    for entry in earlier:
        sent = entry.batch
        if sent is None or not len(sent):
            continue
        renamed = np.array([numbers.get(name, -1) for name in sent.entities], np.int64)
        codes = renamed[sent.entity]
        there = np.flatnonzero(codes >= 0)
        at, inside = _find_keys(make_keys(codes[there].astype(np.int32), sent.time_ms[there]), keys)
        rows = there[inside]
        if len(rows):
            _overlay_sent(known, entry, sent, at=at, rows=rows)


def _overlay_sent(
    known: KnownRevision,
    entry: QueueEntry,
    sent: SampleBatch,
    *,
    at: NDArray[Any],
    rows: NDArray[Any],
) -> None:
    for name, values in sent.columns.items():
        if name not in known.revisions:
            continue
        filled = ~np.isnan(values[rows])
        own = _get_plan(entry, name, len(sent))[rows]
        newer = filled & (own >= known.revisions[name][at])
        known.revisions[name][at[newer]] = own[newer]
        known.values[name][at[newer]] = values[rows][newer]
    versions = _get_plan(entry, "", len(sent), first=1)[rows]
    newer = versions >= known.versions[at]
    known.versions[at[newer]] = versions[newer]
    known.holders[at[newer]] = list_holder_names(sent)[rows][newer]


def _get_plan(entry: QueueEntry, name: str, many: int, first: int = 0) -> Revisions:
    if entry.plan is None or name not in entry.plan:
        return np.full(many, first, np.int64)
    return entry.plan[name]


def list_holder_names(batch: SampleBatch) -> NDArray[np.object_]:
    """Return the workload of each row by name, None for none."""
    names = np.array([*(name or None for name in batch.workloads), None], object)
    if batch.workload is None:
        return np.full(len(batch), None, object)
    found: NDArray[np.object_] = names[batch.workload]
    return found


def plan_revisions(
    batch: SampleBatch, known: KnownRevision
) -> tuple[dict[str, Revisions], dict[str, NDArray[np.bool_]]]:
    """Return the revision of every sample, and which must be sent.

    "" stands for the rows themselves.
    """
    plan: dict[str, Revisions] = {}
    missing: dict[str, NDArray[np.bool_]] = {}
    for name, values in batch.columns.items():
        there = known.revisions[name]
        same = (there >= 0) & (known.values[name] == values)
        plan[name] = np.where(same, there, there + 1)
        missing[name] = ~same & ~np.isnan(values)
    same_holder = (known.versions > 0) & (known.holders == list_holder_names(batch))
    plan[""] = np.where(same_holder, known.versions, np.maximum(known.versions, 0) + 1)
    missing[""] = ~same_holder
    return plan, missing


def find_missing(
    batch: SampleBatch, plan: dict[str, Revisions] | None, known: KnownRevision
) -> dict[str, NDArray[np.bool_]]:
    """Return which samples are not there under their revision, nor under a later one."""
    missing = {}
    for name, values in batch.columns.items():
        wanted = np.zeros(len(batch), np.int64) if plan is None else plan[name]
        missing[name] = (known.revisions[name] < wanted) & ~np.isnan(values)
    wanted = np.ones(len(batch), np.int64) if plan is None else plan[""]
    missing[""] = known.versions < wanted
    return missing


def split_by_revision(
    batch: SampleBatch,
    plan: dict[str, Revisions] | None,
    missing: dict[str, NDArray[np.bool_]] | None,
) -> list[tuple[int, SampleBatch]]:
    """Return the rows to send under each revision; None is everything, under the first."""
    if plan is None and missing is None:
        return [(0, batch)]
    found: list[tuple[int, SampleBatch]] = []
    zero = np.zeros(len(batch), np.int64)
    revisions = {n: zero if plan is None else plan[n] for n in batch.columns}
    needed = {n: ~np.isnan(batch.columns[n]) if missing is None else missing[n] for n in revisions}
    numbers = sorted({int(r) for n in revisions for r in np.unique(revisions[n][needed[n]])})
    for number in numbers:
        columns = {
            name: np.where(needed[name] & (revisions[name] == number), values, np.nan).astype(
                np.float32
            )
            for name, values in batch.columns.items()
        }
        filled = np.zeros(len(batch), bool)
        for values in columns.values():
            filled |= ~np.isnan(values)
        whole = replace(batch, columns=columns)
        found.append((number, take_rows(whole, filled)))
    return found
