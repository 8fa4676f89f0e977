"""The judge: takes samples, events and facts as they come, and says at any moment which rules hold.

It is the same object live, in a rebuild from history and in a back-test; only who feeds it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marey.model.metrics import Entity, catalogue
from marey.model.samples import SampleBatch
from marey.model.times import MINUTE_MS
from marey.rules.definition import Rule
from marey.rules.expressions import Clause, Series, conditions
from marey.rules.measuring import Measuring, Sketches, needs_bins, statistic_of
from marey.rules.tenants import Layout, Tenants
from marey.rules.truth import FALSE, TRUE, UNKNOWN, Truths, quantify
from marey.rules.vocabulary import statistic_named
from marey.stats.sketch_tables import (
    Need,
    Roster,
    SketchTable,
    Span,
    Ticks,
    WindowRing,
    coming_of,
)

# Clocks of hosts differ; a sample further ahead of us than this is a broken clock.
FUTURE_MS = 5 * MINUTE_MS
# How long a finished workload's rows still take late samples.
GRACE_MS = 15 * MINUTE_MS
# Windows of so many metrics are kept for lenses and drafts, beyond those that rules name.
WATCHED_METRICS = 4


@dataclass(frozen=True)
class Verdict:
    """What one rule says of every workload, over its life and now."""

    rule: Rule
    life: Truths
    now: Truths
    # Per GPU; kept only where any workload is in violation.
    gpus_life: Truths | None = None
    gpus_now: Truths | None = None
    # Which variant of the rule (override) each workload was judged by, and what each says.
    variant: NDArray[np.int64] | None = None
    clauses: Sequence[Clause] = ()


@dataclass(frozen=True)
class Judgement:
    """Every verdict at one moment, and the numbers behind them."""

    time_ms: int
    layout: Layout
    verdicts: Sequence[Verdict]
    measuring: Measuring = field(repr=False)

    @property
    def workloads(self) -> list[str]:
        """The workloads in the order of the verdicts' arrays."""
        return [tenant.facts.workload for tenant in self.layout.tenants]


@njit(cache=True, nogil=True)
def _touch(first_ms, last_ms, seen, time_ms, entity, first_row, rows, from_ms, to_ms):  # type: ignore[no-untyped-def]
    for i in range(len(time_ms)):
        code = entity[i]
        if not seen[i] or code < 0 or code + 1 >= len(first_row):
            continue
        for place in range(first_row[code], first_row[code + 1]):
            row = rows[place]
            if from_ms[row] <= time_ms[i] < to_ms[row]:
                if time_ms[i] > last_ms[row]:
                    last_ms[row] = time_ms[i]
                if first_ms[row] == 0 or time_ms[i] < first_ms[row]:
                    first_ms[row] = time_ms[i]


class Judge:
    """Streaming state of all workloads under a set of rules."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.tenants = Tenants()
        self.sketches = Sketches(SketchTable([]), {}, {}, {}, {})
        self.newest_ms = 0
        self.rules: list[Rule] = []
        self._variants: dict[str, list[tuple[Any, Clause]]] = {}
        # Windows that lenses and drafts asked for, the latest last.
        self._watched: dict[str, Need] = {}
        # Sketch these metrics only (a back-test needs no others); None: all that come.
        self.only: set[str] | None = None
        # Whether *now* is asked of a rule that nobody violates over the life.
        self.watching: Callable[[str], bool] = lambda rule: True
        self._rosters: dict[Entity, tuple[object, int, Roster]] = {}
        self._attributes: dict[str, tuple[Roster, NDArray[np.float64]]] = {}
        self.use(rules)

    # -- rules
    def use_as_they_are(self, rules: Iterable[Rule]) -> None:
        """Judge by these rules, without keeping windows for them."""
        self.rules = [rule for rule in rules if rule.enabled]
        self._variants = {rule.id: rule.variants() for rule in self.rules}

    def use(self, rules: Iterable[Rule]) -> set[str]:
        """Judge by these rules from now on; returns metrics whose windows start empty."""
        self.use_as_they_are(rules)
        needed = windows_of(self.rules)
        for metric in set(self.sketches.rings) - set(needed):
            self._drop_ring(metric)
        self._watched = {m: need for m, need in self._watched.items() if m in needed}
        fresh = {metric for metric, need in needed.items() if self._ring(metric, need)}
        return fresh if self.newest_ms else set()

    def watch(self, metric: str, need: Need) -> bool:
        """Keep windows that no rule names, for a while; True where they start empty."""
        self._watched[metric] = self._watched.pop(metric, need) | need
        named = windows_of(self.rules)
        for oldest in [m for m in self._watched if m not in named][:-WATCHED_METRICS]:
            del self._watched[oldest]
            self._drop_ring(oldest)
        return self._ring(metric, need) and bool(self.newest_ms)

    def _drop_ring(self, metric: str) -> None:
        self.sketches.rings.pop(metric, None)
        self.sketches.since_ms.pop(metric, None)

    def _ring(self, metric: str, need: Need) -> bool:
        self._place(metric)
        need |= self._watched.get(metric, need)
        ring = self.sketches.rings.get(metric)
        new = WindowRing(self.sketches.spans[metric], need, 0)
        if ring is not None and ring.holds(new):
            return False
        new.reserve(self.tenants.room)
        self._drop_ring(metric)
        self.sketches.rings[metric] = new
        return True

    def _place(self, metric: str) -> int:
        sketches = self.sketches
        if metric not in sketches.metrics:
            known = catalogue()[metric]
            span = Span(known.minimum, known.maximum)
            sketches.table.add_metrics([span])
            sketches.spans[metric] = span
            sketches.metrics[metric] = len(sketches.metrics)
        return sketches.metrics[metric]

    # -- samples
    def take(self, batch: SampleBatch, now_ms: int | None = None) -> int:
        """Take samples of GPUs or hosts into all sketches; returns how many values were taken."""
        if now_ms is not None and len(batch) and batch.time_ms.max() > now_ms + FUTURE_MS:
            batch = rows_of(batch, batch.time_ms <= now_ms + FUTURE_MS)
        if not len(batch):
            return 0
        self._reserve()
        roster = self._roster(batch)
        columns = self._columns(batch)
        if not columns:
            return 0
        names = list(columns)
        slots = np.array([self._place(name) for name in names], np.int64)
        time_ms = np.ascontiguousarray(batch.time_ms, np.int64)
        entity = np.ascontiguousarray(batch.entity, np.int32)
        values = np.ascontiguousarray(np.stack([columns[n] for n in names]), np.float32)
        ticks = Ticks(time_ms, entity, values)
        taken = self.sketches.table.update(ticks, slots, roster)
        self._windows(names, ticks, roster)
        self._seen(ticks, roster, batch.kind)
        return taken

    def _seen(self, ticks: Ticks, roster: Roster, kind: Entity) -> None:
        # A row without a single value says nothing, not even that the GPU is there.
        seen = ~np.isnan(ticks.values).all(axis=0)
        if seen.any():
            self.newest_ms = max(self.newest_ms, int(ticks.time_ms[seen].max()))
        if kind is Entity.GPU:
            args = (roster.first_row, roster.rows, roster.from_ms, roster.to_ms)
            book = self.tenants
            _touch(book.first_ms, book.last_ms, seen, ticks.time_ms, ticks.entity, *args)

    def _windows(self, names: list[str], ticks: Ticks, roster: Roster) -> None:
        newest, coming = int(ticks.time_ms.max()), coming_of(ticks)
        for column, name in enumerate(names):
            ring = self.sketches.rings.get(name)
            if ring is not None:
                self.sketches.since_ms.setdefault(name, int(ticks.time_ms.min()))
                ring.advance(max(newest, self.newest_ms))
                ring.update(ticks, column, roster, coming)

    def _reserve(self) -> None:
        room = self.tenants.room
        self.sketches.table.reserve(room)
        for ring in self.sketches.rings.values():
            ring.reserve(room)

    def _roster(self, batch: SampleBatch) -> Roster:
        kept = self._rosters.get(batch.kind)
        if kept and kept[0] is batch.entities and kept[1] == self.tenants.version:
            return kept[2]
        roster = self.tenants.roster(batch.entities, hosts=batch.kind is Entity.HOST)
        self._rosters[batch.kind] = (batch.entities, self.tenants.version, roster)
        return roster

    def _columns(self, batch: SampleBatch) -> dict[str, NDArray[np.float32]]:
        known = catalogue()
        columns = {name: values for name, values in batch.columns.items() if name in known}
        for name, metric in known.items():
            derived = metric.derived
            if derived and derived.base in columns and name not in columns:
                whole = self._attribute(batch, derived.per)
                columns[name] = (100.0 * columns[derived.base] / whole[batch.entity]).astype(
                    np.float32
                )
        if self.only is None:
            return columns
        return {name: values for name, values in columns.items() if name in self.only}

    def columns_for(self, batch: SampleBatch) -> tuple[dict[str, NDArray[np.float32]], Roster]:
        """A batch's columns, derived ones included, and whose rows they go to."""
        self._reserve()
        return self._columns(batch), self._roster(batch)

    def _attribute(self, batch: SampleBatch, per: str) -> NDArray[np.float64]:
        roster = self._roster(batch)
        kept = self._attributes.get(per)
        if kept is not None and kept[0] is roster:
            return kept[1]
        values = np.full(len(batch.entities), np.nan)
        for code in range(len(batch.entities)):
            for place in range(roster.first_row[code], roster.first_row[code + 1]):
                seat = self.tenants.seats[roster.rows[place]]
                value = getattr(seat, per, None)
                if value:
                    values[code] = value
        self._attributes[per] = (roster, values)
        return values

    # -- verdicts
    def measure(self, time_ms: int) -> Measuring:
        """The numbers of every GPU under judgement at this moment."""
        self._reserve()
        return Measuring(
            time_ms, self.tenants.layout(), self.tenants, self.sketches, self.newest_ms
        )

    def judge(self, time_ms: int) -> Judgement:
        """Every rule on every workload; one that has ended gets its last verdict here."""
        measuring = self.measure(time_ms)
        layout = measuring.layout
        verdicts = [self._verdict(rule, measuring) for rule in self.rules]
        for tenant in layout.tenants:
            if tenant.facts.end_ms is not None and tenant.facts.end_ms <= time_ms:
                self.tenants.finish(tenant)
        return Judgement(time_ms, layout, verdicts, measuring)

    def test(
        self, clause: Clause, time_ms: int, now_ms: int | None = None
    ) -> tuple[Truths, Truths]:
        """A clause that is no rule yet: its truth per workload and per GPU, as laid out."""
        measuring = self.measure(time_ms)
        truths = measuring.truth(clause.expression, now_ms)
        return quantify(clause.quantifier, truths, measuring.layout), truths

    def _verdict(self, rule: Rule, measuring: Measuring) -> Verdict:
        chosen = _chosen(self._variants[rule.id], measuring.layout)
        life, gpus_life = self._truths(rule, measuring, chosen, None)
        if not (life == TRUE).any() and not self.watching(rule.id):
            return Verdict(rule, life, np.full(len(life), FALSE, np.uint8))
        self.concern(rule, measuring, life)
        now, gpus_now = self._truths(rule, measuring, chosen, rule.now_ms)
        if not ((life == TRUE).any() or (now == TRUE).any()):
            return Verdict(rule, life, now)
        clauses = [clause for _, clause in self._variants[rule.id]]
        return Verdict(rule, life, now, gpus_life, gpus_now, chosen, clauses)

    def concern(self, rule: Rule, measuring: Measuring, life: Truths) -> None:
        """Whom *now* is asked of, once the verdict on their life is known: here of everybody."""

    def _truths(
        self, rule: Rule, measuring: Measuring, chosen: NDArray[np.int64], window: int | None
    ) -> tuple[Truths, Truths]:
        """The rule's truth per workload and per GPU, each by the variant that judges it."""
        layout = measuring.layout
        truths = np.full(len(layout.tenants), UNKNOWN, np.uint8)
        gpus = np.full(len(layout), UNKNOWN, np.uint8)
        for place, (override, clause) in enumerate(self._variants[rule.id]):
            mine = chosen == place
            if override is not None and not override.enabled:
                truths[mine] = FALSE
                continue
            if not mine.any():
                continue
            per_gpu = measuring.truth(clause.expression, window)
            rows = mine[layout.workload]
            truths[mine] = quantify(clause.quantifier, per_gpu, layout)[mine]
            gpus[rows] = per_gpu[rows]
        return truths, gpus

    def sweep(self, time_ms: int) -> list[str]:
        """Forget workloads that ended long enough ago that no late sample will come."""
        gone = [
            name
            for name, tenant in self.tenants.by_name.items()
            if tenant.finished and (tenant.facts.end_ms or 0) + GRACE_MS < time_ms
        ]
        for name in gone:
            for row in self.tenants.forget(name):
                self.clear_row(row)
        return gone

    def clear_row(self, row: int) -> None:
        """Forget what a row's sketches hold."""
        if row < len(self.sketches.table.agg):
            self.sketches.table.clear(row)
        for ring in self.sketches.rings.values():
            if row < len(ring.agg):
                ring.clear(row)

    # -- what information cards and diagnostics ask for
    def statistics(
        self, workload: str, metrics: Sequence[str], words: Sequence[str]
    ) -> dict[str, dict[str, dict[str, float | None]]]:
        """Whole-life statistics of one workload: GPU → metric → statistic → value."""
        tenant = self.tenants.by_name.get(workload)
        if tenant is None:
            return {}
        self._reserve()
        rows = np.array(list(tenant.rows.values()), np.int64)
        out: dict[str, dict[str, dict[str, float | None]]] = {gpu: {} for gpu in tenant.rows}
        for metric in metrics:
            if metric in self.sketches.metrics:
                for gpu, entry in zip(out, self._whole_life(metric, words, rows), strict=True):
                    out[gpu][metric] = entry
        return out

    def _whole_life(
        self, metric: str, words: Sequence[str], rows: NDArray[np.int64]
    ) -> list[dict[str, float | None]]:
        place = self.sketches.metrics[metric]
        agg = self.sketches.table.agg[rows, place]
        bins = self.sketches.table.bins[rows, place]
        columns: Mapping[str, NDArray[np.float64]] = {
            word: statistic_of(statistic, agg, lambda: bins, self.sketches.spans[metric])
            for word in words
            if (statistic := statistic_named(word)) is not None
        }
        return [
            {
                word: None if np.isnan(values[i]) else float(values[i])
                for word, values in columns.items()
            }
            for i in range(len(rows))
        ]

    @property
    def nbytes(self) -> tuple[int, int]:
        """Memory of whole-life sketches, and of windows."""
        rings = sum(ring.nbytes for ring in self.sketches.rings.values())
        return self.sketches.table.nbytes, rings


def windows_of(rules: Iterable[Rule]) -> dict[str, Need]:
    """The trailing windows of each metric that the rules name, *now* included."""
    needed: dict[str, Need] = {}
    for rule in rules:
        for _, clause in rule.variants():
            for metric, need in windows_in(clause, rule.now_ms).items():
                needed[metric] = needed.get(metric, need) | need
    return needed


def windows_in(clause: Clause, now_ms: int) -> dict[str, Need]:
    """The trailing windows that one clause reads."""
    needed: dict[str, Need] = {}
    for condition in conditions(clause.expression):
        left = condition.left
        if isinstance(left, Series):
            window = left.window_ms or now_ms
            need = Need(window, window if needs_bins(left.statistic) else 0)
            needed[left.metric] = needed.get(left.metric, need) | need
    return needed


def _chosen(variants: Sequence[tuple[Any, Clause]], layout: Layout) -> NDArray[np.int64]:
    """Which variant judges each workload: the first override that matches it, else the last."""
    last = len(variants) - 1
    chosen = np.full(len(layout.tenants), last, np.int64)
    if last == 0:
        return chosen
    for place, tenant in enumerate(layout.tenants):
        facts = tenant.facts
        for number, (override, _) in enumerate(variants[:-1]):
            if override.matches(facts.partition, facts.project):
                chosen[place] = number
                break
    return chosen


def rows_of(batch: SampleBatch, kept: NDArray[np.bool_] | slice) -> SampleBatch:
    """Some rows of a batch."""
    return SampleBatch(
        batch.time_ms[kept],
        batch.entity[kept],
        batch.entities,
        {name: values[kept] for name, values in batch.columns.items()},
        batch.kind,
        batch.cluster,
        None if batch.workload is None else batch.workload[kept],
        batch.workloads,
    )
