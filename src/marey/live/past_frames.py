"""Past moments as frames, built from columns: whoever walks through the past asks for many."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from marey.live.cluster_table import ClusterTable
from marey.live.frames import STATE_CODE, Changes, Frame, LiveWorkload, Units
from marey.live.live_samples import LiveSamples
from marey.live.moments import inventory_of, observation_of, workload_of
from marey.live.queue_order import queue_of
from marey.live.unit_rows import verdict
from marey.model.inventory import HostState, HostStatus
from marey.model.protocols import Moment
from marey.model.samples import SampleBatch
from marey.model.tables import WorkloadRow
from marey.model.workloads import Workload, WorkloadState, WorkloadStatus

_HOW_HOSTS_ARE = ["state", "reason"]
_HOW_GPUS_ARE = ["failed", "failed_reason"]
_STATUS_COLUMNS = ("workload", "state", "reason", "priority")
# Facts of workloads that are kept for the next moment.
_FACTS_KEPT = 50_000
_NO_CHANGES = Changes(np.zeros(0, np.int64))


class PastFrames:
    """Past moments as the frames that a client would have been sent.

    The machines of the last moment asked for are kept: most others were on the same ones. So a
    GPU also keeps its row from one moment to the next.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._machines: dict[str, _Machines] = {}

    def frame(self, moment: Moment, samples: SampleBatch | None) -> Frame:
        """Return the cluster at this moment."""
        with self._lock:
            machines = self._machines.get(moment.cluster)
            if machines is None or not machines.match_machines(moment):
                machines = self._machines[moment.cluster] = _Machines(moment)
            return machines.frame(moment, samples)


class _Machines:
    """Hosts and GPUs, and what ran on them at one moment or another."""

    def __init__(self, moment: Moment) -> None:
        self._hosts = moment.hosts.drop(_HOW_HOSTS_ARE)
        self._gpus = moment.gpus.drop(_HOW_GPUS_ARE)
        table = ClusterTable(moment.cluster)
        table.apply(inventory_of(moment))
        self._rows = table.units
        self._still = table.units.picture()[0].still
        # Rows are given in the order of the moment's GPUs.
        self._names = self._still.column("gpu").combine_chunks()
        host_at = {name: at for at, name in enumerate(moment.hosts.column("host").to_pylist())}
        hosts = self._still.column("host").to_pylist()
        self._host_at = np.array([host_at.get(host, -1) for host in hosts], np.int64)
        self._facts: dict[tuple[Any, ...], Workload] = {}

    def match_machines(self, moment: Moment) -> bool:
        """Return whether the moment had just these machines; how they were may differ."""
        return bool(
            moment.hosts.drop(_HOW_HOSTS_ARE).equals(self._hosts)
            and moment.gpus.drop(_HOW_GPUS_ARE).equals(self._gpus)
        )

    def frame(self, moment: Moment, samples: SampleBatch | None) -> Frame:
        """Return their picture at this moment."""
        rows = pc.index_in(moment.allocations.column("gpu"), value_set=self._names)
        if rows.null_count:
            return _build_frame(moment, samples)
        units = self._build_units(moment, rows.to_numpy())
        live = LiveSamples(self._rows)
        if samples is not None:
            live.take(samples)
        workloads = self._list_workloads(moment)
        return Frame(
            cluster=moment.cluster,
            seq=0,
            time_ms=moment.time_ms,
            units=units,
            workloads=workloads,
            queue=queue_of(workloads.values()),
            columns=live.picture(),
            before={},
            changes=_NO_CHANGES,
        )

    def _build_units(self, moment: Moment, held_rows: NDArray[Any]) -> Units:
        count = len(self._names)
        held: list[tuple[str, ...]] = [()] * count
        names = moment.allocations.column("workload").to_pylist()
        for row, name in zip(held_rows.tolist(), names, strict=True):
            held[row] = (*held[row], name)
        is_held = np.zeros(count, bool)
        is_held[held_rows] = True
        codes, reasons = _group_by_host(moment)
        state = codes[self._host_at, is_held.astype(np.int64)]
        reason = [
            reasons[host][is_busy]
            for host, is_busy in zip(self._host_at.tolist(), is_held.tolist(), strict=True)
        ]
        failed = moment.gpus.column("failed").to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(failed).tolist():
            why = moment.gpus.column("failed_reason")[row].as_py() or ""
            judged, reason[row] = verdict(why, bool(is_held[row]), None)
            state[row] = STATE_CODE[judged.value]
        return Units(self._still, state, reason, held)

    def _list_workloads(self, moment: Moment) -> Mapping[str, LiveWorkload]:
        table = moment.workloads
        facts = [n for n in table.column_names if n not in ("cluster", *_STATUS_COLUMNS[1:])]
        listed = [table.column(name).to_pylist() for name in facts]
        status = [table.column(name).to_pylist() for name in _STATUS_COLUMNS]
        if len(self._facts) > _FACTS_KEPT:
            self._facts.clear()
        found = {}
        for reported, said in zip(
            zip(*listed, strict=True), zip(*status, strict=True), strict=True
        ):
            workload = self._facts.get(reported)
            if workload is None:
                workload = workload_of(cast(WorkloadRow, dict(zip(facts, reported, strict=True))))
                self._facts[reported] = workload
            name, state, reason, priority = said
            now = WorkloadStatus(name, WorkloadState(state), reason or "", priority or 0.0)
            found[name] = LiveWorkload(workload, now)
        return found


def _group_by_host(moment: Moment) -> tuple[NDArray[np.uint8], list[tuple[str, str]]]:
    """Return the state of a GPU of each host that is free or held, and why.

    The last is of no host.
    """
    states = moment.hosts.column("state").to_pylist()
    whys = moment.hosts.column("reason").to_pylist()
    reported: list[HostStatus | None] = [
        HostStatus("", HostState(state or "up"), why or "")
        for state, why in zip(states, whys, strict=True)
    ]
    judged = [[verdict(None, held, host) for held in (False, True)] for host in (*reported, None)]
    codes = np.array([[STATE_CODE[s.value] for s, _ in pair] for pair in judged], np.uint8)
    return codes, [(free[1], busy[1]) for free, busy in judged]


def _build_frame(moment: Moment, samples: SampleBatch | None) -> Frame:
    """Return a moment with GPUs that no inventory names.

    As the live table would have shown them.
    """
    table = ClusterTable(moment.cluster)
    table.apply(observation_of(moment))
    if samples is not None:
        table.measure(samples)
    return table.frame(moment.time_ms)
