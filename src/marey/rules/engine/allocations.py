"""Who holds which GPU, as rows: one row per allocation, kept dense and sorted for the kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from marey.model.events import ClusterEventKind
from marey.model.inventory import short_model
from marey.stats.sketches.sketch_tables import EntityRows, room_for

# Facts that count events, and which.
EVENT_FACTS = {
    "xid_events": ClusterEventKind.XID,
    "throttle_events": ClusterEventKind.THROTTLE,
    "node_down_events": ClusterEventKind.NODE_DOWN,
}
# Checkpoints and evaluations of a week would leave no room for what counts.
_COUNTED = frozenset(EVENT_FACTS.values())
# Attributes of a GPU that derived metrics are a share of.
WHOLES = ("power_limit_w", "memory_mib")
FOREVER = np.iinfo(np.int64).max
EVENT_LIMIT = 1_000
NO_RANK = 1 << 40


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a workload that rules may ask for; times in milliseconds."""

    workload: str
    user: str = ""
    project: str = ""
    partition: str = ""
    qos: str = ""
    experiment: str = ""
    name: str = ""
    state: str = "running"
    submit_ms: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    time_limit_s: int | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True)
class HeldGpu:
    """One GPU in a workload, from when to when."""

    gpu: str
    host: str
    from_ms: int
    to_ms: int = FOREVER
    global_rank: int | None = None
    local_rank: int | None = None
    share: float = 1.0
    model: str = ""
    power_limit_w: float | None = None
    memory_mib: float | None = None


@dataclass
class RunningWorkload:
    """A workload with its rows, its last progress and what happened to its GPUs."""

    facts: Facts
    rows: dict[str, int] = field(default_factory=dict)
    progress_ms: int | None = None
    finished: bool = False


@dataclass(frozen=True)
class AllocationLayout:
    """The rows of the workloads under evaluation, sorted by workload and host."""

    running: Sequence[RunningWorkload]
    rows: NDArray[np.int64]
    first: NDArray[np.int64]
    node_first: NDArray[np.int64]
    # Per sorted row: the place of its workload and of its node.
    workload: NDArray[np.int64]
    node: NDArray[np.int64]
    # Global rank, or where the scheduler gave none the order of admission after all known ranks.
    rank: NDArray[np.int64]
    # Facts of GPUs that only change with the layout, made when first asked for.
    gpu_facts: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def lives(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return when each workload began (NaN: not known) and ended (infinity: not yet)."""
        if "start" not in self.gpu_facts:
            facts = [running.facts for running in self.running]
            starts = [np.nan if f.start_ms is None else f.start_ms for f in facts]
            ends = [np.inf if f.end_ms is None else f.end_ms for f in facts]
            self.gpu_facts["start"] = np.array(starts, np.float64)
            self.gpu_facts["end"] = np.array(ends, np.float64)
        return self.gpu_facts["start"], self.gpu_facts["end"]


class AllocationRows:
    """The book of allocations: gives each a row, and frees it when the workload is forgotten."""

    def __init__(self) -> None:
        self.by_name: dict[str, RunningWorkload] = {}
        self.held_gpus: list[HeldGpu | None] = []
        self.free: list[int] = []
        self.version = 0
        self.from_ms = np.zeros(0, np.int64)
        self.to_ms = np.zeros(0, np.int64)
        # Time of the first and last sample taken for the row; 0 before there is one.
        self.first_ms = np.zeros(0, np.int64)
        self.last_ms = np.zeros(0, np.int64)
        # What derived metrics are shares of, per row; NaN where it is not known.
        self.wholes = {name: np.zeros(0) for name in WHOLES}
        self.events: dict[int, list[tuple[int, str]]] = {}
        self._by_gpu: dict[str, list[int]] = defaultdict(list)
        self._by_host: dict[str, list[int]] = defaultdict(list)
        self._layouts: dict[int, AllocationLayout] = {}
        # What the last layout has not got yet; whether it must be made from the ground up.
        self._added: dict[str, RunningWorkload] = {}
        self._reshaped = True
        self._sorted: dict[str, _Rows] = {}

    @property
    def room(self) -> int:
        """How many rows the tables need."""
        return len(self.held_gpus)

    def admit(self, facts: Facts, held_gpus: Iterable[HeldGpu]) -> RunningWorkload:
        """Take up a workload, or what is new about it; GPUs that it lost keep their past."""
        running = self.by_name.get(facts.workload)
        if running is None:
            running = self.by_name[facts.workload] = RunningWorkload(facts)
            self._added[facts.workload] = running
            self.version += 1
        elif running.facts != facts:
            self._update_facts(running, facts)
        for held_gpu in held_gpus:
            self._hold(running, held_gpu)
        return running

    def _update_facts(self, running: RunningWorkload, facts: Facts) -> None:
        running.facts = facts
        self.version += 1
        if facts.end_ms is not None:
            for row in running.rows.values():
                self._set_end(row, facts.end_ms)

    def _set_end(self, row: int, end_ms: int) -> None:
        held_gpu = self.held_gpus[row]
        if held_gpu is not None and end_ms < held_gpu.to_ms:
            self.held_gpus[row] = replace(held_gpu, to_ms=end_ms)
            self.to_ms[row] = end_ms

    def _hold(self, running: RunningWorkload, held_gpu: HeldGpu) -> None:
        end_ms = running.facts.end_ms
        if end_ms is not None and end_ms < held_gpu.to_ms:
            held_gpu = replace(held_gpu, to_ms=end_ms)
        row = running.rows.get(held_gpu.gpu)
        if row is not None:
            before = self.held_gpus[row]
            if before is not None:
                held_gpu = replace(held_gpu, from_ms=min(before.from_ms, held_gpu.from_ms))
            if before == held_gpu:
                return
        else:
            row = self._add_row()
            running.rows[held_gpu.gpu] = row
            self._by_gpu[held_gpu.gpu].append(row)
            self._by_host[held_gpu.host].append(row)
        self.held_gpus[row] = held_gpu
        self._set_row(row, held_gpu)
        self._sorted.pop(running.facts.workload, None)
        self._reshaped |= running.facts.workload not in self._added
        self.version += 1

    def _add_row(self) -> int:
        if self.free:
            return self.free.pop()
        return self.append_held_gpu(None)

    def append_held_gpu(self, held_gpu: HeldGpu | None) -> int:
        """Return a new row at the end, with room for it."""
        self.held_gpus.append(held_gpu)
        room = room_for(len(self.held_gpus), len(self.from_ms))
        if room > len(self.from_ms):
            more = np.zeros(room - len(self.from_ms), np.int64)
            self.from_ms = np.append(self.from_ms, more)
            self.to_ms = np.append(self.to_ms, more)
            self.first_ms = np.append(self.first_ms, more)
            self.last_ms = np.append(self.last_ms, more)
            unknown = np.full(len(more), np.nan)
            self.wholes = {n: np.append(values, unknown) for n, values in self.wholes.items()}
        row = len(self.held_gpus) - 1
        if held_gpu is not None:
            self._set_row(row, held_gpu)
        return row

    def _set_row(self, row: int, held_gpu: HeldGpu) -> None:
        self.from_ms[row], self.to_ms[row] = held_gpu.from_ms, held_gpu.to_ms
        for name, values in self.wholes.items():
            values[row] = getattr(held_gpu, name) or np.nan

    def restore(self, running: RunningWorkload) -> None:
        """Take back a workload whose rows are already in place."""
        self.by_name[running.facts.workload] = running
        for gpu, row in running.rows.items():
            self._by_gpu[gpu].append(row)
            held_gpu = self.held_gpus[row]
            if held_gpu is not None:
                self._by_host[held_gpu.host].append(row)
        self._reshaped = True
        self.version += 1

    def leave(self, workload: str, gpu: str, at_ms: int) -> None:
        """Take the GPU from the workload from this moment on."""
        running = self.by_name.get(workload)
        if running and gpu in running.rows:
            self._set_end(running.rows[gpu], at_ms)
            self.version += 1

    def forget(self, workload: str) -> list[int]:
        """Let go of a workload; returns its rows, which others may have from now on."""
        running = self.by_name.pop(workload)
        self._sorted.pop(workload, None)
        self._added.pop(workload, None)
        self._reshaped |= not running.finished
        rows = list(running.rows.values())
        for gpu, row in running.rows.items():
            held_gpu = self.held_gpus[row]
            self._by_gpu[gpu].remove(row)
            if held_gpu is not None:
                self._by_host[held_gpu.host].remove(row)
            self.held_gpus[row] = None
            self.first_ms[row] = self.last_ms[row] = 0
            self.events.pop(row, None)
        self.free.extend(rows)
        self.version += 1
        return rows

    def note(self, gpu: str, *, host: str, kind: str, time_ms: int, workload: str = "") -> None:
        """Note what happened to a GPU, or to a whole host; it counts for who held it then."""
        if kind not in _COUNTED:
            return
        rows = self._by_gpu.get(gpu, []) if gpu else self._by_host.get(host, [])
        if not gpu and not host and workload in self.by_name:
            rows = list(self.by_name[workload].rows.values())
        for row in rows:
            # A host that goes down ends its workloads at that very moment: count it too.
            if self.from_ms[row] <= time_ms <= self.to_ms[row]:
                noted = self.events.setdefault(row, [])
                if (time_ms, kind) not in noted and len(noted) < EVENT_LIMIT:
                    noted.append((time_ms, kind))

    def find_entity_rows(self, entities: Sequence[str], *, hosts: bool = False) -> EntityRows:
        """Return the rows of each entity of a batch, GPUs or hosts."""
        book = self._by_host if hosts else self._by_gpu
        found = [book.get(name, ()) for name in entities]
        first = np.zeros(len(found) + 1, np.int64)
        np.cumsum([len(rows) for rows in found], out=first[1:])
        rows = np.fromiter((row for rows in found for row in rows), np.int64, int(first[-1]))
        return EntityRows(first, rows, self.from_ms, self.to_ms)

    def layout(self) -> AllocationLayout:
        """Return the rows of every workload that is not finished, sorted.

        Made anew when they change.
        """
        if self.version not in self._layouts:
            before = None if self._reshaped else next(iter(self._layouts.values()), None)
            self._layouts = {self.version: self._update_layout(before)}
        return self._layouts[self.version]

    def _update_layout(self, before: AllocationLayout | None) -> AllocationLayout:
        """Make the layout from the one before, where workloads have only come and gone since."""
        source = self.by_name if before is None else self._added
        found = [t for t in source.values() if not t.finished and t.rows]
        self._added = {name: t for name, t in self._added.items() if not t.rows}
        self._reshaped = False
        return _build_layout(before, found, [self.rows_of(running) for running in found])

    def rows_of(self, running: RunningWorkload) -> _Rows:
        """Return a workload's rows, sorted once and again only when its GPUs change."""
        name = running.facts.workload
        if name not in self._sorted:
            self._sorted[name] = _rows_of(self, running)
        return self._sorted[name]

    def finish(self, running: RunningWorkload) -> None:
        """Close the workload, which has had its last verdict."""
        running.finished = True
        self.version += 1


@dataclass(frozen=True, slots=True)
class _Rows:
    """One workload's rows by host, then in the order of admission; where each host begins."""

    rows: NDArray[np.int64]
    hosts: NDArray[np.bool_]
    ranks: NDArray[np.int64]


def _rows_of(book: AllocationRows, running: RunningWorkload) -> _Rows:
    # By the order of admission, not of rows: those are handed out anew again and again.
    admitted = [
        (book.held_gpus[row], place, row) for place, row in enumerate(running.rows.values())
    ]
    placed = sorted(admitted, key=lambda entry: _get_host(entry[0]))
    hosts = [_get_host(held_gpu) for held_gpu, _, _ in placed]
    begins = [i == 0 or hosts[i] != hosts[i - 1] for i in range(len(hosts))]
    ranks = [_get_rank(held_gpu, place) for held_gpu, place, _ in placed]
    return _Rows(
        np.array([row for _, _, row in placed], np.int64),
        np.array(begins, bool),
        np.array(ranks, np.int64),
    )


def _get_host(held_gpu: HeldGpu | None) -> str:
    return held_gpu.host if held_gpu else ""


def _get_rank(held_gpu: HeldGpu | None, place: int) -> int:
    return (
        NO_RANK + place
        if held_gpu is None or held_gpu.global_rank is None
        else held_gpu.global_rank
    )


def _build_layout(
    before: AllocationLayout | None, found: list[RunningWorkload], parts: list[_Rows]
) -> AllocationLayout:
    """Return the rest of a layout, followed by these workloads."""
    kept = _drop_finished(before) if before is not None else _NOBODY
    running = [*kept.running, *found]
    rows = np.concatenate([kept.rows, *(part.rows for part in parts)])
    begins = np.concatenate([kept.begins, *(part.hosts for part in parts)])
    sizes = np.concatenate([kept.sizes, np.array([len(p.rows) for p in parts], np.int64)])
    first = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=first[1:])
    return AllocationLayout(
        running=running,
        rows=rows,
        first=first,
        node_first=np.append(np.flatnonzero(begins), len(rows)).astype(np.int64),
        workload=np.repeat(np.arange(len(sizes)), sizes),
        node=np.cumsum(begins) - 1,
        rank=np.concatenate([kept.ranks, *(part.ranks for part in parts)]),
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """The workloads of a layout that go on, and what it has of them."""

    running: Sequence[RunningWorkload]
    rows: NDArray[np.int64]
    begins: NDArray[np.bool_]
    sizes: NDArray[np.int64]
    ranks: NDArray[np.int64]


_NONE = np.zeros(0, np.int64)
_NOBODY = _Kept((), _NONE, np.zeros(0, bool), _NONE, _NONE)


def _drop_finished(layout: AllocationLayout) -> _Kept:
    running = [workload for workload in layout.running if not workload.finished]
    sizes = np.diff(layout.first)
    begins = np.zeros(len(layout), bool)
    begins[layout.node_first[:-1]] = True
    if len(running) == len(layout.running):
        return _Kept(running, layout.rows, begins, sizes, layout.rank)
    alive = np.array([not workload.finished for workload in layout.running], bool)
    goes_on = np.repeat(alive, sizes)
    return _Kept(running, layout.rows[goes_on], begins[goes_on], sizes[alive], layout.rank[goes_on])


def gpu_type(held_gpu: HeldGpu) -> str:
    """Return ``A100`` for any of its full names; empty where the model is not known."""
    return short_model(held_gpu.model) if held_gpu.model else ""
