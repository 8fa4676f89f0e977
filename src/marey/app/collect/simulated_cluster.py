"""A simulated cluster inside a service: its past, its commands, and its life after a restart."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from marey.app.collect.clocks import ScaledClock
from marey.app.collect.loop import keep
from marey.app.collect.source_documents import SimulationChanges, SimulationState
from marey.app.settings.configuration import SimulatedSettings
from marey.live.cluster_table import ClusterTable
from marey.live.summary import STEP_MS, Row, SummaryLog, summarise
from marey.model.errors import Conflict, NotFound
from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.model.protocols import Store
from marey.model.times import HOUR_MS
from marey.sim import Simulation
from marey.sim.config import Placement, Policy, SimConfig
from marey.sources.simulated import SimulatedSource

DOCUMENT_KIND = "simulation"

Report = Callable[[float], None]
Tell = Callable[[Sequence[Observation]], None]


@dataclass(slots=True)
class SimulatedCluster:
    """A simulation with its clock, as a source and as something that can be steered."""

    settings: SimulatedSettings
    simulation: Simulation
    store: Store
    clock: ScaledClock
    history_until_ms: int
    _lock: threading.Lock
    _source: SimulatedSource

    @property
    def name(self) -> str:
        """What the sources page calls it."""
        return self.settings.name

    def poll(self, now_ms: int) -> Sequence[Observation]:
        """Return the observations up to this moment of the simulated clock."""
        with self._lock:
            return self._source.poll(now_ms)

    def close(self) -> None:
        """Remember where the simulation is."""
        self.remember()

    def state(self) -> SimulationState:
        """Return policy, placement, backfill and speed now, and what is allowed."""
        return SimulationState(
            **self.simulation.policy(),
            speed=self.clock.speed,
            time_ms=self.clock.now_ms(),
            gpus=self.simulation.config.gpus,
            seed=self.simulation.config.seed,
            policies=[policy.value for policy in Policy],
            placements=[placement.value for placement in Placement],
        )

    def change(self, changes: SimulationChanges) -> SimulationState:
        """Set some of policy, placement, backfill and speed; kept for a restart."""
        with self._lock:
            self.simulation.set_policy(
                policy=changes.get("policy"),
                placement=changes.get("placement"),
                backfill=changes.get("backfill"),
            )
            if "speed" in changes:
                self.clock.set_speed(changes["speed"])
        self.remember()
        return self.state()

    def start_clock(self) -> None:
        """Let simulated time run from where the simulation is now."""
        now_ms = max(self.simulation.now_ms, self.history_until_ms)
        self.clock.set_time(now_ms)
        # The clock tells simulated time: the source follows it from this moment on.
        self._source.simulated_ms(now_ms)

    def remember(self) -> None:
        """Keep what a restart needs beside the history itself."""
        with self._lock:
            document = {
                "state": self.simulation.state(),
                "history_until_ms": self.history_until_ms,
                "speed": self.clock.speed,
            }
        self.store.put_document(DOCUMENT_KIND, self.settings.cluster, document)


def open_simulated(settings: SimulatedSettings, store: Store, wall_ms: int) -> SimulatedCluster:
    """Return the simulation of these settings: the one the store remembers, or a new one."""
    try:
        remembered = store.document(DOCUMENT_KIND, settings.cluster)
    except NotFound:
        remembered = None
    if remembered is None:
        simulation, until_ms = _make_simulation(settings, store, wall_ms)
    else:
        simulation = _resume_simulation(settings, store, remembered["state"])
        until_ms = remembered["history_until_ms"]
    clock = ScaledClock(max(simulation.now_ms, until_ms), settings.speed)
    source = SimulatedSource(simulation, 1.0, name=settings.name)
    cluster = SimulatedCluster(
        settings,
        simulation,
        store,
        clock=clock,
        history_until_ms=until_ms,
        _lock=threading.Lock(),
        _source=source,
    )
    cluster.remember()
    return cluster


def _make_simulation(
    settings: SimulatedSettings, store: Store, wall_ms: int
) -> tuple[Simulation, int]:
    if settings.cluster in store.clusters():
        raise Conflict(
            f"The store already holds a cluster '{settings.cluster}' that is not a simulated "
            "one; give another store."
        )
    tick_ms = SimConfig().tick_ms
    ends_ms = wall_ms if settings.until_ms is None else settings.until_ms
    until_ms = ends_ms - ends_ms % tick_ms
    start_ms = until_ms - round(settings.history_hours * HOUR_MS / tick_ms) * tick_ms
    config = SimConfig(
        gpus=settings.gpus, seed=settings.seed, start_ms=start_ms, cluster=settings.cluster
    )
    return Simulation(config), until_ms


def _resume_simulation(
    settings: SimulatedSettings, store: Store, state: dict[str, Any]
) -> Simulation:
    """Return the simulation as it was when the last tick was kept; later ones were never seen."""
    known = {name: state["config"][name] for name in ("gpus", "seed")}
    asked = {"gpus": settings.gpus, "seed": settings.seed}
    if known != asked:
        raise Conflict(
            f"The store holds a simulated cluster of {known['gpus']} GPUs, seed {known['seed']}, "
            f"not of {asked['gpus']} GPUs, seed {asked['seed']}; give another store."
        )
    span = store.span(settings.cluster)
    last_ms = span[1] if span else state["config"]["start_ms"] - 1
    return Simulation.resume({**state, "now_ms": last_ms})


def simulate_history(
    cluster: SimulatedCluster, summaries: SummaryLog, report: Report, tell: Tell = lambda _: None
) -> None:
    """Produce the missing past in blocks, each stored as one step and then passed on.

    A block is kept in a thread while the cluster lives through the next one.
    """
    simulation = cluster.simulation
    begin_ms = simulation.now_ms
    ticks = simulation.ticks_due(cluster.history_until_ms)
    if ticks <= 0:
        return
    past = _Past(cluster.settings.cluster, summaries)
    hours = ticks * simulation.config.tick_ms / HOUR_MS
    block: list[Observation] = []

    def take(lived: list[Observation]) -> None:
        keep(cluster.store, lived)
        past.take(lived)
        tell(lived)

    with ThreadPoolExecutor(1, "keep") as writer:
        kept: Future[None] | None = None
        # Nobody commands a cluster that is not served yet: it may live a block ahead of its
        # samples.
        for observation in simulation.history(hours, ahead=True):
            block.append(observation)
            if observation.samples:
                if kept is not None:
                    kept.result()
                kept = writer.submit(take, block)
                report((observation.time_ms - begin_ms) / (cluster.history_until_ms - begin_ms))
                block = []
        if kept is not None:
            kept.result()
    if block:
        keep(cluster.store, block)
    cluster.store.maintain(simulation.now_ms)


class _Past:
    """The summary of history that is produced in blocks: records first, samples after them."""

    def __init__(self, cluster: str, summaries: SummaryLog) -> None:
        self._table = ClusterTable(cluster)
        self._cluster = cluster
        self._summaries = summaries
        self._step: int | None = None

    def take(self, block: Sequence[Observation]) -> None:
        """Add rows for every five minutes of the block, with the utilization of its samples."""
        rows: list[Row] = []
        for observation in block:
            step = observation.time_ms // STEP_MS
            # A row shows what held when its five minutes began.
            passed = range(step if self._step is None else self._step, step)
            rows += [summarise(self._table.frame((one + 1) * STEP_MS)) for one in passed]
            self._step = step
            self._table.apply(observation)
        means = _compute_mean_util([observation for observation in block if observation.samples])
        for row in rows:
            row["util"] = means.get(row["time_ms"] // STEP_MS)
        self._summaries.add(self._cluster, rows)


def _compute_mean_util(observations: Sequence[Observation]) -> dict[int, float]:
    """Return mean utilization of allocated GPUs by five minutes."""
    means: dict[int, float] = {}
    for observation in observations:
        for batch in observation.samples:
            if batch.kind is not Entity.GPU or batch.workload is None:
                continue
            values = batch.columns.get("util")
            if values is None:
                continue
            busy = (batch.workload >= 0) & ~np.isnan(values)
            steps = batch.time_ms[busy] // STEP_MS
            if not len(steps):
                continue
            first = int(steps.min())
            sums = np.bincount(steps - first, values[busy])
            counts = np.bincount(steps - first)
            for at in np.flatnonzero(counts):
                means[first + int(at)] = round(float(sums[at] / counts[at]), 2)
    return means
