"""The GPUs of the live table: a stable row each, what they are, and their state."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.live.frames import STATE_CODE, Units
from marey.model.errors import InvalidInput
from marey.model.inventory import (
    Gpu,
    GpuState,
    GpuStatus,
    Host,
    HostState,
    HostStatus,
    resource_type,
)
from marey.model.names import parse_gpu_id

# A source that invents names must not fill the memory: beyond this nothing is added.
UNKNOWN_GPUS_LIMIT = 20_000
# Far more ticks than a client may lag behind before it is sent everything anew.
REUSED_AFTER_PICTURES = 240

# A GPU that nobody claims is in use when it works this much for so many ticks.
WORKING_UTIL = 10.0
WORKING_TICKS = 3
UNCLAIMED = "in use, but no workload claims it"

_NAMES = pa.dictionary(pa.int32(), pa.string())
_HOST_STATES = {
    HostState.DOWN: GpuState.DOWN,
    HostState.UNKNOWN: GpuState.UNKNOWN,
    HostState.DRAINED: GpuState.DRAINED,
}


class UnitRows:
    """Rows of GPUs with their host's facts, state, and the workloads that hold them."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._rows: dict[str, int] = {}
        self._gpus: list[Gpu | None] = []
        self._hosts: dict[str, Host] = {}
        self._host_rows: dict[str, list[int]] = {}
        self._host_states: dict[str, HostStatus] = {}
        self._failed: dict[int, str] = {}
        # For how many ticks each GPU has been measured at work.
        self._working = np.zeros(0, np.uint8)
        # GPUs that no inventory names.
        self.unknown_count = 0
        self._all_known: tuple[Sequence[str], bool] | None = None
        self._state = np.zeros(0, np.uint8)
        self._reason: list[str] = []
        self.workloads: list[tuple[str, ...]] = []
        self._changed: set[int] = set()
        self._removed: set[int] = set()
        # Rows of GPUs that have gone, in order, with the picture that told of it.
        self._free: deque[tuple[int, int]] = deque()
        self._reused: list[int] = []
        self._pictures = 0
        self._still: pa.Table | None = None
        self._picture: Units | None = None
        # Counts up whenever rows are added or a GPU's facts change.
        self.version = 0

    def __len__(self) -> int:
        return len(self._gpus)

    def row_of(self, gpu: str) -> int | None:
        """Return the GPU's row, or None for one that is not known."""
        return self._rows.get(gpu)

    def host_of(self, row: int) -> str:
        """Return the host of a row."""
        gpu = self._gpus[row]
        return gpu.host if gpu else ""

    def host_names(self) -> set[str]:
        """Return every host that is known."""
        return {*self._hosts, *self._host_rows}

    def knows_all(self, gpus: Sequence[str]) -> bool:
        """Return whether every one of these has a row; sources repeat their list, so it is kept."""
        if self._all_known is None or self._all_known[0] is not gpus:
            known = all(gpu in self._rows for gpu in gpus)
            self._all_known = (gpus, known)
        return self._all_known[1]

    def attribute(self, name: str) -> NDArray[np.float32]:
        """Return a number of every GPU (its power limit, its memory) by row; NaN where unknown."""
        return np.array(
            [np.nan if gpu is None else _to_number(getattr(gpu, name)) for gpu in self._gpus],
            np.float32,
        )

    def take_hosts(self, hosts: Iterable[Host]) -> None:
        """Add hosts, or change what is known of them."""
        for host in hosts:
            if self._hosts.get(host.host) == host:
                continue
            self._hosts[host.host] = host
            self._touch(self._host_rows.get(host.host, ()), still=True)

    def take_gpus(self, gpus: Iterable[Gpu]) -> None:
        """Add GPUs, or change what is known of them; a new one gets the next row."""
        for gpu in gpus:
            row = self._rows.get(gpu.gpu)
            if row is None:
                self._add(gpu)
            elif self._gpus[row] != gpu:
                self._gpus[row] = gpu
                # Its siblings' resource type counts it, so the whole host is told again.
                self._touch(self._host_rows[gpu.host], still=True)

    def add_unknown(self, gpu: str) -> int | None:
        """Return a GPU that no inventory names.

        None where the name is none or there are too many.
        """
        try:
            name = parse_gpu_id(gpu)
        except InvalidInput:
            return None
        if self.unknown_count >= UNKNOWN_GPUS_LIMIT:
            return None
        self.unknown_count += 1
        return self._add(Gpu(name.host, name.index, name.instance))

    def _add(self, gpu: Gpu) -> int:
        row = self._find_old_row()
        if row is None:
            row = len(self._gpus)
            self._gpus.append(None)
            self._reason.append("")
            self.workloads.append(())
        self._rows[gpu.gpu] = row
        self._gpus[row] = gpu
        self._host_rows.setdefault(gpu.host, []).append(row)
        if row >= len(self._state):
            self._state = np.concatenate([self._state, np.zeros(max(64, row), np.uint8)])
        self._touch(self._host_rows[gpu.host], still=True)
        self._decide_state(row)
        return row

    def _find_old_row(self) -> int | None:
        """Find a row that has been empty for so long that nobody can take its new GPU
        for the old.
        """
        if not self._free or self._pictures - self._free[0][1] < REUSED_AFTER_PICTURES:
            return None
        row, _ = self._free.popleft()
        self._removed.discard(row)
        self._reason[row] = ""
        self._reused.append(row)
        return row

    def take_reused(self) -> list[int]:
        """Return rows given to other GPUs since this was last asked: their values are not these
        GPUs'.
        """
        reused, self._reused = self._reused, []
        return reused

    def keep_only(self, gpus: set[str]) -> None:
        """Remove every GPU that is not named; its row stays empty for a long while."""
        for name in [name for name in self._rows if name not in gpus]:
            row = self._rows.pop(name)
            gpu = self._gpus[row]
            self._gpus[row] = None
            self.workloads[row] = ()
            self._failed.pop(row, None)
            self._removed.add(row)
            self._free.append((row, self._pictures))
            self._touch((), still=True)
            if gpu is not None:
                self._leave_host(gpu.host, row)

    def _leave_host(self, host: str, row: int) -> None:
        rows = self._host_rows[host]
        rows.remove(row)
        if not rows:
            for known in (self._host_rows, self._hosts, self._host_states):
                known.pop(host, None)

    def set_host_state(self, status: HostStatus) -> None:
        """Set the host's state, and with it that of its GPUs."""
        self._host_states[status.host] = status
        for row in self._host_rows.get(status.host, ()):
            self._decide_state(row)

    def set_failed(self, status: GpuStatus) -> None:
        """Mark a GPU as broken by itself, or as whole again."""
        row = self._rows.get(status.gpu)
        if row is None:
            return
        if status.failed:
            self._failed[row] = status.reason
        else:
            self._failed.pop(row, None)
        self._decide_state(row)

    def hold(self, workload: str, rows: Iterable[int]) -> None:
        """Give the workload these GPUs from now on."""
        for row in rows:
            self.workloads[row] = (*self.workloads[row], workload)
            self._touch((row,))
            self._decide_state(row)

    def release(self, workload: str, rows: Iterable[int]) -> None:
        """Take these GPUs from the workload."""
        for row in rows:
            self.workloads[row] = tuple(w for w in self.workloads[row] if w != workload)
            self._touch((row,))
            self._decide_state(row)

    def _decide_state(self, row: int) -> None:
        gpu = self._gpus[row]
        if gpu is None:
            return
        host = self._host_states.get(gpu.host)
        state, reason = verdict(self._failed.get(row), bool(self.workloads[row]), host)
        working = row < len(self._working) and self._working[row] >= WORKING_TICKS
        if state is GpuState.IDLE and working:
            state, reason = GpuState.UNCLAIMED, UNCLAIMED
        code = STATE_CODE[state.value]
        if self._state[row] != code or self._reason[row] != reason:
            self._state[row] = code
            self._reason[row] = reason
            self._touch((row,))

    def note_working(self, util: NDArray[np.float32]) -> None:
        """Learn which GPUs are measured at work: one that nobody claims is not idle."""
        before = np.zeros(len(util), np.uint8)
        kept = min(len(util), len(self._working))
        before[:kept] = self._working[:kept]
        with np.errstate(invalid="ignore"):
            self._working = np.where(util >= WORKING_UTIL, np.minimum(before + 1, WORKING_TICKS), 0)
        changed = (self._working >= WORKING_TICKS) != (before >= WORKING_TICKS)
        for row in np.flatnonzero(changed).tolist():
            if not self.workloads[row]:
                self._decide_state(row)

    def _touch(self, rows: Iterable[int], *, still: bool = False) -> None:
        self._changed.update(rows)
        self._picture = None
        if still:
            self._all_known = None
            self._still = None
            self.version += 1

    def picture(self) -> tuple[Units, NDArray[np.int64], tuple[int, ...]]:
        """Return units now, the rows that changed and the rows that went since the last picture."""
        if self._still is None:
            self._still = self._build_still_table()
        if self._picture is None:
            count = len(self._gpus)
            self._picture = Units(
                self._still, self._state[:count].copy(), tuple(self._reason), tuple(self.workloads)
            )
        self._pictures += 1
        changed = np.array(sorted(self._changed - self._removed), np.int64)
        removed = tuple(sorted(self._removed))
        self._changed.clear()
        self._removed.clear()
        return self._picture, changed, removed

    def _build_still_table(self) -> pa.Table:
        rows = [row for row, gpu in enumerate(self._gpus) if gpu is not None]
        gpus = [gpu for gpu in self._gpus if gpu is not None]
        nowhere = Host("")
        hosts = [self._hosts.get(gpu.host, nowhere) for gpu in gpus]
        counts = {host: len(present) for host, present in self._host_rows.items()}
        types = {
            key: resource_type(*key) for key in {(gpu.model, counts[gpu.host]) for gpu in gpus}
        }
        return pa.table(
            {
                "row": pa.array(rows, pa.int32()),
                "cluster": _encode([self._cluster] * len(gpus)),
                "gpu": pa.array([gpu.gpu for gpu in gpus], pa.string()),
                "host": _encode([gpu.host for gpu in gpus]),
                "index": pa.array([gpu.index for gpu in gpus], pa.int32()),
                "instance": pa.array([gpu.instance for gpu in gpus], pa.int32()),
                "rack": _encode([host.rack for host in hosts]),
                "switch": _encode([host.switch for host in hosts]),
                "nvlink_domain": _encode([host.nvlink_domain for host in hosts]),
                "known_by": _encode([host.known_by for host in hosts]),
                "partitions": pa.array([host.partitions for host in hosts], pa.list_(pa.string())),
                "model": _encode([gpu.model for gpu in gpus]),
                "resource_type": _encode([types[gpu.model, counts[gpu.host]] for gpu in gpus]),
                "power_limit_w": pa.array([gpu.power_limit_w for gpu in gpus], pa.float32()),
                "memory_mib": pa.array([gpu.memory_mib for gpu in gpus], pa.float32()),
                "uuid": pa.array([gpu.uuid for gpu in gpus], pa.string()),
            }
        )


def verdict(failed: str | None, held: bool, host: HostStatus | None) -> tuple[GpuState, str]:
    """Return the state of a GPU and why: broken by itself, or as its host is and whether work holds
    it.
    """
    if failed is not None:
        return GpuState.FAILED, failed
    # Whether a host that nobody spoke for is up is not known.
    host = host or HostStatus("", HostState.UNKNOWN)
    if host.state is HostState.UP:
        return (GpuState.ALLOCATED if held else GpuState.IDLE), ""
    # A host that drains lets its workloads finish: such a GPU is in use, and says why.
    if held and host.state is not HostState.DOWN:
        return GpuState.ALLOCATED, host.reason
    return _HOST_STATES[host.state], host.reason


def _encode(names: list[str]) -> pa.Array:
    return pa.array(names, pa.string()).dictionary_encode()


def _to_number(value: float | None) -> float:
    return np.nan if value is None else value
