"""The hosts' own life: maintenance, silence, repair."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marey.model.events import ClusterEventKind, Event
from marey.model.inventory import GpuStatus, HostState, HostStatus
from marey.model.times import HOUR_MS, MINUTE_MS
from marey.sim.cluster import Cluster
from marey.sim.random_draws import RandomDraws, generator
from marey.sim.scheduling.event_queue import QueuedEventKind

MAINTENANCE_PER_HOST_HOUR = 1.0 / 1_200.0


class Hosts:
    """Which hosts may be used, and when broken ones come back."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.states: dict[int, HostStatus] = {}
        self._repair_ms: dict[int, int] = {}
        cluster.on_event[QueuedEventKind.INSPECT] = self._plan_maintenance
        cluster.on_event[QueuedEventKind.DRAIN] = self._maintain
        cluster.on_event[QueuedEventKind.REPAIRED] = self._finish_repair
        if cluster.config.maintenance:
            cluster.at(cluster.now_ms, QueuedEventKind.INSPECT)

    def gpus(self, host: int) -> NDArray[np.int64]:
        """Return the numbers of a host's GPUs."""
        hardware = self.cluster.hardware
        first = int(hardware.host_first[host])
        return np.arange(first, first + int(hardware.host_size[host]))

    def set_state(self, host: int, state: HostState, reason: str) -> None:
        """Change what a host may be used for, and tell it."""
        self.cluster.host_up[host] = state is HostState.UP
        status = HostStatus(self.cluster.hardware.host_names[host], state, reason)
        if state is HostState.UP:
            self.states.pop(host, None)
        else:
            self.states[host] = status
        self.cluster.tell(status)

    def drain(self, host: int, reason: str, repair_ms: int) -> None:
        """Start nothing new here; what runs may end. It comes back after so long."""
        self.set_state(host, HostState.DRAINED, reason)
        self._tell(ClusterEventKind.NODE_DRAIN, host, reason)
        self.plan_repair(host, repair_ms)

    def lose(self, host: int, reason: str) -> None:
        """Note that the scheduler has noticed a host that does not answer."""
        self.set_state(host, HostState.DOWN, reason)
        self._tell(ClusterEventKind.NODE_DOWN, host, reason)

    def plan_repair(self, host: int, delay_ms: int) -> None:
        """Bring the host back after so long, or later where it was planned so already."""
        moment = max(self.cluster.now_ms + delay_ms, self._repair_ms.get(host, 0))
        self._repair_ms[host] = moment
        self.cluster.at(moment, QueuedEventKind.REPAIRED, host)

    def _tell(self, kind: ClusterEventKind, host: int, text: str) -> None:
        name = self.cluster.hardware.host_names[host]
        self.cluster.tell(Event(self.cluster.now_ms, kind, host=name, text=text))

    def _plan_maintenance(self) -> None:
        cluster = self.cluster
        chance = generator(cluster.config.seed, 82, cluster.now_ms)
        hosts = len(cluster.host_up)
        for host in chance.integers(0, hosts, chance.poisson(hosts * MAINTENANCE_PER_HOST_HOUR)):
            cluster.at(
                cluster.now_ms + int(chance.integers(HOUR_MS)), QueuedEventKind.DRAIN, int(host)
            )
        cluster.at(cluster.now_ms + HOUR_MS, QueuedEventKind.INSPECT)

    def _maintain(self, host: int) -> None:
        if self.cluster.host_up[host]:
            hours = RandomDraws(self.cluster.config.seed, 85, host, self.cluster.now_ms).between(
                1.0, 5.0
            )
            self.drain(host, "maintenance", int(hours * HOUR_MS))

    def _finish_repair(self, host: int) -> None:
        cluster = self.cluster
        if cluster.now_ms < self._repair_ms.get(host, 0):
            return
        # Work on a host waits until the last workload has left it.
        if cluster.host_jobs[host]:
            self.plan_repair(host, 10 * MINUTE_MS)
            return
        gpus = self.gpus(host)
        for gpu in gpus.tolist():
            if cluster.failed_gpus.pop(gpu, None) is not None:
                cluster.tell(GpuStatus(cluster.hardware.gpu_names[gpu], False))
        cluster.until[gpus] = 0
        silent = cluster.gpu_states.is_silent(gpus)
        if silent.any():
            cluster.gpu_states.rest(gpus[silent], cluster.now_ms)
        state = self.states.get(host)
        was_down = state is not None and state.state is HostState.DOWN
        self.set_state(host, HostState.UP, "")
        self._tell(ClusterEventKind.NODE_UP if was_down else ClusterEventKind.NODE_RESUME, host, "")
        for number, part in enumerate(cluster.hardware.parts):
            if part.first_host <= host < part.first_host + part.host_count:
                cluster.call_pass(number)
