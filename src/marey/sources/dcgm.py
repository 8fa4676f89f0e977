"""GPU exporters (NVIDIA's dcgm-exporter, AMD's) and node_exporter, scraped directly."""

from __future__ import annotations

import asyncio
import hashlib
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import MareyError, Unavailable
from marey.model.events import ClusterEventKind, Event
from marey.model.inventory import Gpu, Host, HostState, HostStatus
from marey.model.metrics import Entity, catalogue
from marey.model.names import DEFAULT_CLUSTER
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.sources.endpoints import EndpointList
from marey.sources.exporter_clocks import ExporterClock
from marey.sources.exposition import GPU_METRICS, WIDTH, Exposition, ExpositionReader
from marey.sources.host_rates import HostRates
from marey.sources.http_fetch import (
    Address,
    Fetcher,
    FetchRules,
    count_connections_to_keep,
    make_loop,
    run_on,
)
from marey.sources.xids import XidWatch

SILENT_AFTER = 3
BACKOFF_MS = 5_000
MOST_BACKOFF_MS = 120_000
ERRORS_SHOWN = 20
CLOCKS_SHOWN = 100
SPREAD_PER_ENDPOINT_S = 0.002
# Those whose turn comes within one such step are asked together: to wake up for each costs more.
STEP_S = 0.02
XID = GPU_METRICS.index("xid")
HOST_METRICS = tuple(m.metric for m in catalogue().values() if m.entity is Entity.HOST)


@dataclass(frozen=True, slots=True)
class ScrapeRules:
    """How exporters are asked; ``announces`` where no scheduler names hosts and GPUs."""

    cluster: str = DEFAULT_CLUSTER
    timeout_s: float = 5.0
    at_once: int = 256
    spread_s: float = 1.0
    short_hosts: bool = False
    trust_labels: bool = True
    announces: bool = True


@dataclass(slots=True)
class Exporter:
    """One exporter, and how it is doing."""

    address: Address
    reader: ExpositionReader
    # Where in the spread it is asked, from 0 to 1.
    share: float = 0.0
    rates: HostRates = field(default_factory=HostRates)
    clock: ExporterClock = field(default_factory=ExporterClock)
    totals: dict[tuple[str, int], tuple[float, int]] = field(default_factory=dict)
    failures: int = 0
    error: str = ""
    error_code: str = ""
    last_ms: int | None = None
    asked_again_ms: int = 0

    def fail(self, error: MareyError, now_ms: int) -> bool:
        """Record a failure; true when it has just become silent."""
        self.failures += 1
        self.error, self.error_code = str(error), error.code
        wait = BACKOFF_MS * 2 ** min(self.failures - SILENT_AFTER, 10)
        if self.failures >= SILENT_AFTER:
            self.asked_again_ms = now_ms + min(round(wait), MOST_BACKOFF_MS)
        return self.failures == SILENT_AFTER

    def succeed(self, now_ms: int) -> bool:
        """Record an answer; true when it was silent before."""
        back = self.failures >= SILENT_AFTER
        self.failures, self.error, self.last_ms, self.asked_again_ms = 0, "", now_ms, 0
        return back


class DcgmSource:
    """Scrapes every endpoint once per poll; one that fails is left out and becomes an event."""

    def __init__(
        self, name: str, addresses: Sequence[Address] | EndpointList, rules: ScrapeRules
    ) -> None:
        self._name = name
        self._rules = rules
        self._list = addresses if isinstance(addresses, EndpointList) else None
        self.endpoints: list[Exporter] = []
        self._loop = make_loop()
        self._fetcher = Fetcher(FetchRules(rules.timeout_s, rules.at_once))
        if not isinstance(addresses, EndpointList):
            self._take_endpoints(addresses)
        self._began = 0.0
        self._xids = XidWatch()
        self._known: dict[str, Gpu] = {}
        self._jobs: dict[str, tuple[str, ...]] = {}

    @property
    def name(self) -> str:
        """What the sources page calls it."""
        return self._name

    def _take_endpoints(self, addresses: Sequence[Address]) -> None:
        """Ask these from now on; those that were asked before go on as they are."""
        known = {endpoint.address.url: endpoint for endpoint in self.endpoints}
        self.endpoints = [known.get(a.url) or self._make_endpoint(a) for a in addresses]
        places = {address.place for address in addresses}
        self._fetcher.keep(count_connections_to_keep(len(places)), places)

    def _make_endpoint(self, address: Address) -> Exporter:
        trust, short = self._rules.trust_labels, self._rules.short_hosts
        reader = ExpositionReader(address.host, trust_labels=trust, short_hosts=short)
        return Exporter(address, reader, _share(address.url))

    def poll(self, now_ms: int) -> Sequence[Observation]:
        """Return the values of every exporter now; ``Unavailable`` only where none answers."""
        changed = self._list.addresses(now_ms) if self._list is not None else None
        if changed is not None:
            self._take_endpoints(changed)
        if not self.endpoints:
            reasons = "; ".join(self._list.errors.values()) if self._list is not None else ""
            raise Unavailable(f"There are no endpoints yet. {reasons}".strip())
        self._began = time.monotonic()
        due = [e for e in self.endpoints if e.asked_again_ms <= now_ms]
        events: list[Event] = []
        read = run_on(self._loop, self._scrape_all(due, now_ms, events))
        if not read and all(e.failures for e in self.endpoints):
            first = self.endpoints[0]
            raise Unavailable(
                f"None of {len(self.endpoints)} exporters answers; "
                f"{first.address.url} {first.error}.",
                code="no_exporter_answers",
            )
        return [self._make_observation(read, now_ms, events)]

    async def _scrape_all(
        self, due: list[Exporter], now_ms: int, events: list[Event]
    ) -> list[tuple[Exporter, Exposition]]:
        """Return those that answer, in their order.

        As many workers as may ask at once share them out.
        """
        spread_s = min(self._rules.spread_s, SPREAD_PER_ENDPOINT_S * (len(self.endpoints) - 1))
        readings: list[Exposition | None] = [None] * len(due)
        waiting = iter(sorted(range(len(due)), key=lambda at: due[at].share))

        async def work() -> None:
            for at in waiting:
                turn_s = round(spread_s * due[at].share / STEP_S) * STEP_S
                early_s = turn_s - (time.monotonic() - self._began)
                if early_s > 0:
                    await asyncio.sleep(early_s)
                readings[at] = await self._scrape(due[at], now_ms, events)

        await asyncio.gather(*(work() for _ in range(min(self._rules.at_once, len(due)))))
        return [(e, found) for e, found in zip(due, readings, strict=True) if found is not None]

    async def _scrape(
        self, endpoint: Exporter, now_ms: int, events: list[Event]
    ) -> Exposition | None:
        try:
            body, date = await self._fetcher.fetch_dated(endpoint.address)
            here_ms = now_ms + round((time.monotonic() - self._began) * 1000)
            endpoint.clock.note(date, here_ms)
            # Times that it stamps are judged by its own clock.
            reading = endpoint.reader.read(body, now_ms + endpoint.clock.ahead_ms)
            _refuse_useless(reading)
        except MareyError as error:
            if endpoint.fail(error, now_ms):
                events.append(
                    _make_event(ClusterEventKind.SOURCE_STALE, endpoint, now_ms, str(error))
                )
            return None
        if endpoint.succeed(now_ms):
            events.append(
                _make_event(ClusterEventKind.SOURCE_BACK, endpoint, now_ms, "answers again")
            )
        _compute_total_rates(endpoint, reading, now_ms)
        return reading

    def _make_observation(
        self, read: list[tuple[Exporter, Exposition]], now_ms: int, events: list[Event]
    ) -> Observation:
        names, values = _gather_values(read)
        cluster = self._rules.cluster
        batches = [b for b in (_make_gpu_batch(names, values, now_ms, cluster),
                               _make_host_batch(read, now_ms, cluster)) if len(b)]  # fmt: skip
        xids = zip(repeat(now_ms), names, values[:, XID].tolist(), strict=False)
        events += self._xids.changes(xids)
        observation = Observation(now_ms, cluster, events=tuple(events), samples=tuple(batches))
        return self._add_new_gpus(observation, read)

    def _add_new_gpus(
        self, observation: Observation, read: list[tuple[Exporter, Exposition]]
    ) -> Observation:
        """Return the observation with hosts and GPUs that are new or have changed."""
        gpus: dict[str, Gpu] = {}
        for _, reading in read:
            gpus.update(zip(reading.names, reading.gpus, strict=True))
        self._jobs = {
            reading.names[at]: tuple(sorted(jobs))
            for _, reading in read
            for at, jobs in reading.jobs.items()
        }
        known = self._known
        # Most are the very objects of the last poll.
        new = [g for name, g in gpus.items() if known.get(name) is not g and known.get(name) != g]
        known_hosts = {gpu.host for gpu in self._known.values()} if new else set()
        self._known.update({gpu.gpu: gpu for gpu in new})
        if not new or not self._rules.announces:
            return observation
        hosts = sorted({gpu.host for gpu in new} - known_hosts)
        return Observation(
            observation.time_ms,
            observation.cluster,
            hosts=tuple(Host(host) for host in hosts),
            gpus=tuple(new),
            host_states=tuple(HostStatus(host, HostState.UP) for host in hosts),
            events=observation.events,
            samples=observation.samples,
        )

    def seen_gpus(self) -> list[Gpu]:
        """Return every GPU seen so far, for a scheduler's source to join; any thread may ask."""
        return list(self._known.values())

    @property
    def metrics(self) -> list[str]:
        """Some of the exporters' names, for whoever wants to know whose exporters they are."""
        return sorted({name for e in self.endpoints for name in e.reader.example_names})

    def seen_jobs(self) -> dict[str, tuple[str, ...]]:
        """Return the holder of each GPU by the labels of the last poll; any thread may ask."""
        return self._jobs

    def clock_offsets(self) -> dict[str, int]:
        """Return exporters whose clock is off, by how much they are ahead; the first of them."""
        off = ((e.address.url, e.clock.ahead_ms) for e in self.endpoints if e.clock.ahead_ms)
        return dict(islice(off, CLOCKS_SHOWN))

    def details(self) -> dict[str, object]:
        """Return how many exporters answer, and why some do not; any thread may ask."""
        failing = [e for e in self.endpoints if e.failures]
        resting = [e.asked_again_ms for e in failing if e.asked_again_ms]
        return {
            "endpoints": len(self.endpoints),
            "failing": len(failing),
            "gpus": len(self._known),
            "not_found": dict(self._list.errors) if self._list is not None else {},
            "clocks_off": len(self.clock_offsets()),
            "errors": [
                {"endpoint": e.address.url, "error": e.error, "code": e.error_code}
                for e in failing[:ERRORS_SHOWN]
            ],
            # All of them rest only where none answers.
            "asked_again_ms": min(resting, default=None)
            if len(resting) == len(self.endpoints)
            else None,
        }

    def close(self) -> None:
        """Close every connection."""
        if not self._loop.is_closed() and not self._loop.is_running():
            self._fetcher.close()
            run_on(self._loop, asyncio.sleep(0))
            self._loop.close()


def _share(url: str) -> float:
    """Return where in the spread an endpoint stands: the same at every poll, evenly over many."""
    return int.from_bytes(hashlib.blake2b(url.encode(), digest_size=4).digest()) / 2**32


def _refuse_useless(reading: Exposition) -> None:
    if reading.gpus or reading.host:
        return
    counts = reading.counts
    if counts.old:
        text = f"sends only values that are too old ({counts.old} lines)"
        raise Unavailable(text, code="old_values")
    if counts.ahead:
        raise Unavailable(f"sends only values of a time to come ({counts.ahead} lines)")
    text = f"sends no metric of the catalogue in {counts.lines} lines"
    raise Unavailable(text, code="no_known_metric")


def _make_event(kind: ClusterEventKind, endpoint: Exporter, now_ms: int, text: str) -> Event:
    return Event(now_ms, kind, host=endpoint.reader.host, text=f"{endpoint.address.url} {text}")


def _compute_total_rates(endpoint: Exporter, reading: Exposition, now_ms: int) -> None:
    """Turn totals of links into rates; a total that fell was reset and says nothing this time."""
    for place, total in reading.totals.items():
        key = (reading.names[place // WIDTH], place % WIDTH)
        before, then_ms = endpoint.totals.get(key, (total, now_ms))
        endpoint.totals[key] = (total, now_ms)
        if total >= before and now_ms > then_ms:
            reading.values[place] = (total - before) / ((now_ms - then_ms) / 1000)


def _gather_values(
    read: list[tuple[Exporter, Exposition]],
) -> tuple[list[str], NDArray[np.float32]]:
    """Return names and values of all GPUs.

    Of two endpoints that name the same GPU the first counts.
    """
    names = [name for _, reading in read for name in reading.names]
    flat = array("d")
    for _, reading in read:
        flat.fromlist(reading.values)
    values = np.frombuffer(flat, np.float64).reshape(len(names), WIDTH)
    if len(set(names)) < len(names):
        first = {name: at for at, name in reversed(list(enumerate(names)))}
        kept = sorted(first.values())
        names, values = [names[at] for at in kept], values[kept]
    with np.errstate(over="ignore"):
        return names, values.astype(np.float32)


def _make_gpu_batch(
    names: list[str], values: NDArray[np.float32], now_ms: int, cluster: str
) -> SampleBatch:
    there = np.logical_not(np.isnan(values).all(axis=0)).tolist()
    columns = {
        metric: np.ascontiguousarray(values[:, at])
        for at, metric in enumerate(GPU_METRICS)
        if there[at]
    }
    return _make_batch(names, columns, Entity.GPU, now_ms=now_ms, cluster=cluster)


def _make_host_batch(
    read: list[tuple[Exporter, Exposition]], now_ms: int, cluster: str
) -> SampleBatch:
    levels = {
        endpoint.reader.host: endpoint.rates.levels(reading.host, now_ms)
        for endpoint, reading in read
        if reading.host
    }
    levels = {host: found for host, found in levels.items() if found}
    columns = {
        metric: np.array([found.get(metric, np.nan) for found in levels.values()], np.float32)
        for metric in HOST_METRICS
        if any(metric in found for found in levels.values())
    }
    return _make_batch(list(levels), columns, Entity.HOST, now_ms=now_ms, cluster=cluster)


def _make_batch(
    names: list[str],
    columns: dict[str, NDArray[np.float32]],
    kind: Entity,
    *,
    now_ms: int,
    cluster: str,
) -> SampleBatch:
    rows = len(names)
    times = np.full(rows, now_ms, np.int64)
    entity = np.arange(rows, dtype=np.int32)
    return SampleBatch(times, entity, names, columns=columns, kind=kind, cluster=cluster).checked()
