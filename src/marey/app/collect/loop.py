"""The collect loop: ask the sources, keep what they say, show it; one tick at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from marey.app.collect.memory import give_back
from marey.app.collect.name_limits import limit_names
from marey.app.collect.polling import PolledSources
from marey.live.cluster_table import ClusterTable
from marey.live.frames import Frame, SourceHeader
from marey.live.moments import observation_of
from marey.live.unknown_gpus import add_unknown_gpus
from marey.model.errors import MareyError, Unavailable
from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.model.protocols import Pace, Source, Store
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS

log = logging.getLogger(__name__)

# A store that cannot write (disk full) is tried again; this many observations wait for it.
BACKLOG_LIMIT = 64


@dataclass(frozen=True, slots=True)
class CollectRules:
    """How often, how patient, and when silence becomes staleness; in cluster time."""

    interval_ms: int = 15_000
    patience_ms: int = 10_000
    stale_after_ms: int = 60_000


@dataclass(slots=True)
class CollectCounts:
    """What the loop has done since it started; read by /metrics and the sources page."""

    ticks: int = 0
    tick_seconds: float = 0.0
    tick_seconds_total: float = 0.0
    tick_cpu_seconds_total: float = 0.0
    slowest_tick_seconds: float = 0.0
    lag_seconds: float = 0.0
    skipped_ticks: int = 0
    samples: int = 0
    dropped_samples: int = 0
    dropped_observations: int = 0
    store_failures: int = 0
    store_error: str = ""
    errors: int = 0
    maintain_seconds_total: float = 0.0
    last_tick_ms: int = 0


Listener = Callable[[Observation], None]


@dataclass(slots=True)
class Watchers:
    """Who is called: for every observation once it is kept, and for every frame."""

    observations: list[Listener] = field(default_factory=list)
    frames: list[Callable[[Frame], None]] = field(default_factory=list)


class Collector:
    """Sources → store → live tables, in a thread of its own or tick by tick."""

    def __init__(
        self, sources: Sequence[Source], store: Store, clock: Pace, rules: CollectRules
    ) -> None:
        self.store = store
        self.clock = clock
        self.rules = rules
        self.counts = CollectCounts()
        self.watchers = Watchers()
        # A store that is a server of its own is shown beside the sources.
        self.about_store: Callable[[int], list[SourceHeader]] = lambda _: []
        self.sources = PolledSources(sources, rules.stale_after_ms)
        self.tables: dict[str, ClusterTable] = {}
        self._backlog: deque[Observation] = deque()
        self._maintained_hour: int | None = None
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    # The thread

    def start(self) -> None:
        """Begin to collect."""
        self._thread = threading.Thread(target=self._run, name="collect", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the tick in hand, then stop asking."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self.sources.close()

    def start_next_tick(self) -> None:
        """Begin the next tick now instead of when it is due."""
        self._wake.set()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self.tick()
            interval_s = self._compute_wall_interval_s()
            due += interval_s
            now = time.monotonic()
            self.counts.lag_seconds = max(0.0, now - due)
            if now > due + interval_s:
                missed = int((now - due) / interval_s)
                self.counts.skipped_ticks += missed
                due = now
            if self._wake.wait(max(0.0, due - now)):
                self._wake.clear()
                due = time.monotonic()

    def _compute_wall_interval_s(self) -> float:
        # Above this speed a tick covers several intervals of the cluster: more than four a
        # second is more than anybody sees.
        return max(0.25, self.rules.interval_ms / 1000 / self.clock.speed)

    # One tick

    def tick(self) -> None:
        """Ask every source once, keep and show what they said; never raises."""
        began, cpu = time.perf_counter(), time.thread_time()
        now_ms = self.clock.now_ms()
        try:
            self._collect(now_ms)
            self._maintain(now_ms)
        except Exception:
            # A fault of ours must not end the collection of everything else.
            self.counts.errors += 1
            log.exception("the collect loop failed at this tick")
        counts = self.counts
        counts.ticks += 1
        counts.last_tick_ms = now_ms
        counts.tick_seconds = time.perf_counter() - began
        counts.tick_seconds_total += counts.tick_seconds
        counts.tick_cpu_seconds_total += time.thread_time() - cpu
        counts.slowest_tick_seconds = max(counts.slowest_tick_seconds, counts.tick_seconds)

    def _collect(self, now_ms: int) -> None:
        for observation in self.sources.poll(now_ms, self.rules.patience_ms / 1000):
            self.take(observation)
        self._drain()
        self.show(now_ms)

    def take(self, observation: Observation) -> None:
        """Put an observation into the live table and in line for the store."""
        table = self.table(observation.cluster)
        observation = add_unknown_gpus(limit_names(observation), table.units, self.counts)
        table.apply(observation)
        gpu_batches = [b for b in observation.samples if b.kind is Entity.GPU]
        for batch in gpu_batches:
            table.measure(batch)
        labelled = tuple(label_batch(batch, table) for batch in observation.samples)
        self._backlog.append(replace(observation, samples=labelled))

    def _drain(self) -> None:
        """Write everything that waits; what cannot be written now waits for the next tick."""
        waiting = list(self._backlog)
        if not waiting:
            return
        try:
            keep(self.store, waiting)
        except MareyError as error:
            self.counts.store_failures += 1
            self.counts.store_error = str(error)
            self._limit_backlog()
            return
        self._backlog.clear()
        self.counts.store_error = ""
        for observation in waiting:
            self.counts.samples += sum(len(b) * len(b.columns) for b in observation.samples)
            for tell in self.watchers.observations:
                tell(observation)

    def _limit_backlog(self) -> None:
        while len(self._backlog) > BACKLOG_LIMIT:
            lost = self._backlog.popleft()
            self.counts.dropped_observations += 1
            self.counts.dropped_samples += sum(len(b) for b in lost.samples)

    def show(self, now_ms: int) -> None:
        """Close the tick: a frame of every cluster to whoever watches."""
        sources = [*self.sources.documents(now_ms), *self.about_store(now_ms)]
        # At a high speed one tick spans more cluster time than staleness does.
        horizon_ms = self.rules.stale_after_ms + round(1000 * self.clock.speed)
        for table in list(self.tables.values()):
            table.forget_values_before(now_ms - horizon_ms)
            frame = table.frame(now_ms, sources=sources, speed=self.clock.speed)
            for tell in self.watchers.frames:
                tell(frame)

    def table(self, cluster: str) -> ClusterTable:
        """Return the live table of a cluster, begun from what the store remembers."""
        if cluster not in self.tables:
            table = ClusterTable(cluster)
            if cluster in self.store.clusters():
                now_ms = self.clock.now_ms()
                table.apply(observation_of(self.store.moment(cluster, now_ms)))
                since_ms = now_ms - self.rules.stale_after_ms
                try:
                    table.measure(self.store.latest(cluster, Entity.GPU, since_ms))
                except Unavailable as error:
                    # Not known is not zero: the next tick of the sources tells the values.
                    log.warning("the last values of %s are not known: %s", cluster, error)
            self.tables[cluster] = table
        return self.tables[cluster]

    def _maintain(self, now_ms: int) -> None:
        hour = now_ms // HOUR_MS
        if self._maintained_hour == hour:
            return
        first = self._maintained_hour is None
        self._maintained_hour = hour
        if first:
            return
        began = time.perf_counter()
        try:
            self.store.maintain(now_ms)
        except MareyError as error:
            self.counts.store_failures += 1
            self.counts.store_error = str(error)
        # An hour put in order went through memory that is not needed until the next one.
        give_back()
        self.counts.maintain_seconds_total += time.perf_counter() - began


def keep(store: Store, observations: Sequence[Observation]) -> None:
    """Write records and samples as one step."""
    batches = [batch for observation in observations for batch in observation.samples]
    store.ingest(observations, batches)


def label_batch(batch: SampleBatch, table: ClusterTable) -> SampleBatch:
    """Return the batch with the workload that holds each GPU now, unless its source said so."""
    if batch.workload is not None or batch.kind is not Entity.GPU:
        return batch
    by_entity, names = table.holder_codes(batch.entities)
    workload = by_entity[batch.entity].astype(np.int32, copy=False)
    return replace(batch, workload=workload, workloads=tuple(names))


def collect(
    sources: Sequence[Source], store: Store, clock: Pace, rules: CollectRules | None = None
) -> Collector:
    """Return a collector of these sources, ready to ``start`` or to be driven tick by tick."""
    return Collector(sources, store, clock, rules or CollectRules())
