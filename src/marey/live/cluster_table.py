"""The one live table of a cluster: observations in, a frame per tick out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from marey.live.frames import Changes, Columns, Frame, LiveWorkload, SourceHeader
from marey.live.live_samples import LiveSamples
from marey.live.quantise import live_scales
from marey.live.queue_order import QueueOrder
from marey.live.unit_rows import UnitRows
from marey.model.inventory import HostState, HostStatus
from marey.model.names import DEFAULT_CLUSTER
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus


class ClusterTable:
    """Units, workloads and metric columns of one cluster; used by one thread at a time.

    Rows are stable: a GPU keeps its row while it is there. One that has gone leaves an empty row,
    which another GPU may get only hundreds of ticks later.
    """

    def __init__(self, cluster: str = DEFAULT_CLUSTER) -> None:
        self.cluster = cluster
        self.units = UnitRows(cluster)
        self.samples = LiveSamples(self.units)
        self._workloads: dict[str, LiveWorkload] = {}
        self._held: dict[str, tuple[int, ...]] = {}
        self._changed_workloads: set[str] = set()
        self._removed_workloads: dict[str, LiveWorkload] = {}
        self._queue = QueueOrder()
        self._seq = 0
        self._before: Columns = {}
        self._frame_workloads: Mapping[str, LiveWorkload] = {}

    def apply(self, observation: Observation) -> None:
        """Take over what was observed; samples apart (``measure``)."""
        self.units.take_hosts(observation.hosts)
        self.units.take_gpus(observation.gpus)
        for host_status in observation.host_states:
            self.units.set_host_state(host_status)
        for gpu_status in observation.gpu_states:
            self.units.set_failed(gpu_status)
        for workload in observation.workloads:
            self._take_workload(workload)
        for status in observation.statuses:
            self._take_status(status)
        self._take_allocations(observation.allocations)
        if observation.complete:
            self._drop_missing(observation)

    def measure(self, batch: SampleBatch) -> None:
        """Take over the newest values of a batch of GPU samples."""
        self.samples.take(batch)

    def forget_values_before(self, time_ms: int) -> None:
        """Forget values older than this: silence is never shown as a level."""
        self.samples.forget_before(time_ms)

    def holder_codes(self, entities: Sequence[str]) -> tuple[NDArray[np.int32], list[str]]:
        """Return for each of these GPUs the workload that holds it now, as codes (-1: none)."""
        rows = self.samples.rows_of(entities)
        names: dict[str, int] = {}
        codes = np.full(len(rows), -1, np.int32)
        workloads = self.units.workloads
        for at, row in enumerate(rows.tolist()):
            held = workloads[row] if row >= 0 else ()
            if held:
                codes[at] = names.setdefault(held[0], len(names))
        return codes, list(names)

    def frame(
        self, time_ms: int, *, sources: Sequence[SourceHeader] = (), speed: float = 1.0
    ) -> Frame:
        """Close the tick: an immutable picture of now, with what changed since the last one."""
        queue, moved = self._queue.update_positions()
        self._changed_workloads.update(moved)
        self._seq += 1
        if self._changed_workloads or self._removed_workloads:
            self._frame_workloads = dict(self._workloads)
        columns = self.samples.picture()
        if "util" in columns:
            self.units.note_working(live_scales()["util"].values(columns["util"]))
        units, changed, removed = self.units.picture()
        gone = {n: w for n, w in self._removed_workloads.items() if n not in self._workloads}
        frame = Frame(
            cluster=self.cluster,
            seq=self._seq,
            time_ms=time_ms,
            units=units,
            workloads=self._frame_workloads,
            queue=queue,
            columns=columns,
            before=self._before,
            changes=Changes(
                units=changed,
                removed_units=removed,
                workloads=tuple(w for w in self._changed_workloads if w in self._workloads),
                removed_workloads=tuple(gone),
                gone=gone,
            ),
            sources=sources,
            speed=speed,
        )
        self._before = columns
        self._changed_workloads.clear()
        self._removed_workloads.clear()
        return frame

    @property
    def workloads(self) -> Mapping[str, LiveWorkload]:
        """What waits or runs, by id."""
        return self._workloads

    # Workloads

    def _take_workload(self, workload: Workload) -> None:
        known = self._workloads.get(workload.workload)
        if known is None:
            if workload.end_ms is not None:
                return
            state = WorkloadState.PENDING if workload.start_ms is None else WorkloadState.RUNNING
            status = WorkloadStatus(workload.workload, state)
        else:
            status = known.status
        self._put(LiveWorkload(workload, status))

    def _take_status(self, status: WorkloadStatus) -> None:
        if status.state.ended:
            self._end_workload(status.workload)
            return
        if status.state is not WorkloadState.RUNNING:
            # Requeued: what does not run holds nothing.
            self._release(status.workload)
        known = self._workloads.get(status.workload)
        workload = known.workload if known else Workload(status.workload)
        self._put(LiveWorkload(workload, status))

    def _put(self, live: LiveWorkload) -> None:
        name = live.workload.workload
        if self._workloads.get(name) == live:
            return
        self._workloads[name] = live
        self._changed_workloads.add(name)
        self._queue.put(live)

    def _end_workload(self, name: str) -> None:
        ended = self._workloads.pop(name, None)
        if ended is not None:
            self._removed_workloads[name] = ended
            self._queue.drop(name)
        self._release(name)

    # Allocations

    def _take_allocations(self, allocations: Iterable[Allocation]) -> None:
        by_workload: dict[str, list[int]] = {}
        for allocation in allocations:
            row = self.units.row_of(allocation.gpu)
            if row is None:
                row = self._add_unknown_gpu(allocation.gpu)
            if row is not None:
                by_workload.setdefault(allocation.workload, []).append(row)
        for workload, rows in by_workload.items():
            if workload not in self._workloads and workload in self._removed_workloads:
                continue
            held = tuple(rows)
            if self._held.get(workload) != held:
                self._release(workload)
                self._held[workload] = held
                self.units.hold(workload, held)

    def _add_unknown_gpu(self, gpu: str) -> int | None:
        """Add a GPU that only an allocation names; it is shown as unknown."""
        row = self.units.add_unknown(gpu)
        if row is not None:
            host = self.units.host_of(row)
            self.units.set_host_state(HostStatus(host, HostState.UNKNOWN, "not in the inventory"))
        return row

    def _release(self, workload: str) -> None:
        rows = self._held.pop(workload, ())
        self.units.release(workload, rows)

    def _drop_missing(self, observation: Observation) -> None:
        """Drop whatever a complete observation does not name: it names all that exists."""
        alive = {w.workload for w in observation.workloads}
        alive |= {s.workload for s in observation.statuses if not s.state.ended}
        for name in [name for name in self._workloads if name not in alive]:
            self._end_workload(name)
        holders = {a.workload for a in observation.allocations}
        for name in [name for name in self._held if name not in holders]:
            self._release(name)
        if observation.gpus:
            self.units.keep_only({gpu.gpu for gpu in observation.gpus})
