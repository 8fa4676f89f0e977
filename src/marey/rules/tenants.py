"""Who holds which GPU, as rows: one row per allocation, kept dense and sorted for the kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from marey.model.inventory import short_model
from marey.stats.sketch_tables import Roster, room_for

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
class Seat:
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
class Tenant:
    """A workload with its rows, its last progress and what happened to its GPUs."""

    facts: Facts
    rows: dict[str, int] = field(default_factory=dict)
    progress_ms: int | None = None
    finished: bool = False


@dataclass(frozen=True)
class Layout:
    """The rows of the workloads under judgement, sorted by workload and host."""

    tenants: Sequence[Tenant]
    rows: NDArray[np.int64]
    first: NDArray[np.int64]
    node_first: NDArray[np.int64]
    # Per sorted row: the place of its workload and of its node.
    workload: NDArray[np.int64]
    node: NDArray[np.int64]
    # Global rank, or where the scheduler gave none the order of admission after all known ranks.
    rank: NDArray[np.int64]
    # Facts of GPUs that only change with the layout, made when first asked for.
    seat_facts: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def lives(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """When each workload began (NaN: not known) and ended (infinity: not yet)."""
        if "start" not in self.seat_facts:
            facts = [tenant.facts for tenant in self.tenants]
            starts = [np.nan if f.start_ms is None else f.start_ms for f in facts]
            ends = [np.inf if f.end_ms is None else f.end_ms for f in facts]
            self.seat_facts["start"] = np.array(starts, np.float64)
            self.seat_facts["end"] = np.array(ends, np.float64)
        return self.seat_facts["start"], self.seat_facts["end"]


class Tenants:
    """The book of allocations: gives each a row, and frees it when the workload is forgotten."""

    def __init__(self) -> None:
        self.by_name: dict[str, Tenant] = {}
        self.seats: list[Seat | None] = []
        self.free: list[int] = []
        self.version = 0
        self.from_ms = np.zeros(0, np.int64)
        self.to_ms = np.zeros(0, np.int64)
        # Time of the first and last sample taken for the row; 0 before there is one.
        self.first_ms = np.zeros(0, np.int64)
        self.last_ms = np.zeros(0, np.int64)
        self.events: dict[int, list[tuple[int, str]]] = {}
        self._by_gpu: dict[str, list[int]] = defaultdict(list)
        self._by_host: dict[str, list[int]] = defaultdict(list)
        self._layouts: dict[int, Layout] = {}
        # What the last layout has not got yet; whether it must be made from the ground up.
        self._added: dict[str, Tenant] = {}
        self._reshaped = True
        self._sorted: dict[str, _Rows] = {}

    @property
    def room(self) -> int:
        """How many rows the tables need."""
        return len(self.seats)

    def admit(self, facts: Facts, seats: Iterable[Seat]) -> Tenant:
        """Take up a workload, or what is new about it; GPUs that it lost keep their past."""
        tenant = self.by_name.get(facts.workload)
        if tenant is None:
            tenant = self.by_name[facts.workload] = Tenant(facts)
            self._added[facts.workload] = tenant
            self.version += 1
        elif tenant.facts != facts:
            self._refact(tenant, facts)
        for seat in seats:
            self._seat(tenant, seat)
        return tenant

    def _refact(self, tenant: Tenant, facts: Facts) -> None:
        tenant.facts = facts
        self.version += 1
        if facts.end_ms is not None:
            for row in tenant.rows.values():
                self._until(row, facts.end_ms)

    def _until(self, row: int, end_ms: int) -> None:
        seat = self.seats[row]
        if seat is not None and end_ms < seat.to_ms:
            self.seats[row] = replace(seat, to_ms=end_ms)
            self.to_ms[row] = end_ms

    def _seat(self, tenant: Tenant, seat: Seat) -> None:
        end_ms = tenant.facts.end_ms
        if end_ms is not None and end_ms < seat.to_ms:
            seat = replace(seat, to_ms=end_ms)
        row = tenant.rows.get(seat.gpu)
        if row is not None:
            before = self.seats[row]
            if before is not None:
                seat = replace(seat, from_ms=min(before.from_ms, seat.from_ms))
            if before == seat:
                return
        else:
            row = self._new_row()
            tenant.rows[seat.gpu] = row
            self._by_gpu[seat.gpu].append(row)
            self._by_host[seat.host].append(row)
        self.seats[row] = seat
        self.from_ms[row], self.to_ms[row] = seat.from_ms, seat.to_ms
        self._sorted.pop(tenant.facts.workload, None)
        self._reshaped |= tenant.facts.workload not in self._added
        self.version += 1

    def _new_row(self) -> int:
        if self.free:
            return self.free.pop()
        return self.append_seat(None)

    def append_seat(self, seat: Seat | None) -> int:
        """A new row at the end, with room for it."""
        self.seats.append(seat)
        room = room_for(len(self.seats), len(self.from_ms))
        if room > len(self.from_ms):
            more = np.zeros(room - len(self.from_ms), np.int64)
            self.from_ms = np.append(self.from_ms, more)
            self.to_ms = np.append(self.to_ms, more)
            self.first_ms = np.append(self.first_ms, more)
            self.last_ms = np.append(self.last_ms, more)
        row = len(self.seats) - 1
        if seat is not None:
            self.from_ms[row], self.to_ms[row] = seat.from_ms, seat.to_ms
        return row

    def restore(self, tenant: Tenant) -> None:
        """Take back a workload whose rows are already in place."""
        self.by_name[tenant.facts.workload] = tenant
        for gpu, row in tenant.rows.items():
            self._by_gpu[gpu].append(row)
            seat = self.seats[row]
            if seat is not None:
                self._by_host[seat.host].append(row)
        self._reshaped = True
        self.version += 1

    def leave(self, workload: str, gpu: str, at_ms: int) -> None:
        """The workload no longer holds the GPU from this moment on."""
        tenant = self.by_name.get(workload)
        if tenant and gpu in tenant.rows:
            self._until(tenant.rows[gpu], at_ms)
            self.version += 1

    def forget(self, workload: str) -> list[int]:
        """Let go of a workload; returns its rows, which others may have from now on."""
        tenant = self.by_name.pop(workload)
        self._sorted.pop(workload, None)
        self._added.pop(workload, None)
        self._reshaped |= not tenant.finished
        rows = list(tenant.rows.values())
        for gpu, row in tenant.rows.items():
            seat = self.seats[row]
            self._by_gpu[gpu].remove(row)
            if seat is not None:
                self._by_host[seat.host].remove(row)
            self.seats[row] = None
            self.first_ms[row] = self.last_ms[row] = 0
            self.events.pop(row, None)
        self.free.extend(rows)
        self.version += 1
        return rows

    def note(self, gpu: str, host: str, kind: str, time_ms: int, workload: str = "") -> None:
        """Something happened to a GPU, or to a whole host; it counts for who held it then."""
        rows = self._by_gpu.get(gpu, []) if gpu else self._by_host.get(host, [])
        if not gpu and not host and workload in self.by_name:
            rows = list(self.by_name[workload].rows.values())
        for row in rows:
            # A host that goes down ends its workloads at that very moment: count it too.
            if self.from_ms[row] <= time_ms <= self.to_ms[row]:
                noted = self.events.setdefault(row, [])
                if (time_ms, kind) not in noted and len(noted) < EVENT_LIMIT:
                    noted.append((time_ms, kind))

    def roster(self, entities: Sequence[str], *, hosts: bool = False) -> Roster:
        """The rows of each entity of a batch, GPUs or hosts."""
        book = self._by_host if hosts else self._by_gpu
        found = [book.get(name, ()) for name in entities]
        first = np.zeros(len(found) + 1, np.int64)
        np.cumsum([len(rows) for rows in found], out=first[1:])
        rows = np.fromiter((row for rows in found for row in rows), np.int64, int(first[-1]))
        return Roster(first, rows, self.from_ms, self.to_ms)

    def layout(self) -> Layout:
        """The rows of every workload that is not finished, sorted; made anew when they change."""
        if self.version not in self._layouts:
            before = None if self._reshaped else next(iter(self._layouts.values()), None)
            self._layouts = {self.version: self._laid_out(before)}
        return self._layouts[self.version]

    def _laid_out(self, before: Layout | None) -> Layout:
        """From the layout before, where workloads have only come and gone since."""
        source = self.by_name if before is None else self._added
        found = [t for t in source.values() if not t.finished and t.rows]
        self._added = {name: t for name, t in self._added.items() if not t.rows}
        self._reshaped = False
        return _layout(before, found, [self.rows_of(tenant) for tenant in found])

    def rows_of(self, tenant: Tenant) -> _Rows:
        """A workload's rows, sorted once and again only when its GPUs change."""
        name = tenant.facts.workload
        if name not in self._sorted:
            self._sorted[name] = _rows_of(self, tenant)
        return self._sorted[name]

    def finish(self, tenant: Tenant) -> None:
        """The workload has had its last verdict."""
        tenant.finished = True
        self.version += 1


@dataclass(frozen=True, slots=True)
class _Rows:
    """One workload's rows by host, then in the order of admission; where each host begins."""

    rows: NDArray[np.int64]
    hosts: NDArray[np.bool_]
    ranks: NDArray[np.int64]


def _rows_of(book: Tenants, tenant: Tenant) -> _Rows:
    # By the order of admission, not of rows: those are handed out anew again and again.
    admitted = [(book.seats[row], place, row) for place, row in enumerate(tenant.rows.values())]
    seated = sorted(admitted, key=lambda entry: _host(entry[0]))
    hosts = [_host(seat) for seat, _, _ in seated]
    begins = [i == 0 or hosts[i] != hosts[i - 1] for i in range(len(hosts))]
    ranks = [_rank(seat, place) for seat, place, _ in seated]
    return _Rows(
        np.array([row for _, _, row in seated], np.int64),
        np.array(begins, bool),
        np.array(ranks, np.int64),
    )


def _host(seat: Seat | None) -> str:
    return seat.host if seat else ""


def _rank(seat: Seat | None, place: int) -> int:
    return NO_RANK + place if seat is None or seat.global_rank is None else seat.global_rank


def _layout(before: Layout | None, found: list[Tenant], parts: list[_Rows]) -> Layout:
    """What is left of a layout, and these workloads after it."""
    kept = _unfinished(before) if before is not None else _NOBODY
    tenants = [*kept.tenants, *found]
    rows = np.concatenate([kept.rows, *(part.rows for part in parts)])
    begins = np.concatenate([kept.begins, *(part.hosts for part in parts)])
    sizes = np.concatenate([kept.sizes, np.array([len(p.rows) for p in parts], np.int64)])
    first = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=first[1:])
    return Layout(
        tenants,
        rows,
        first,
        np.append(np.flatnonzero(begins), len(rows)).astype(np.int64),
        np.repeat(np.arange(len(sizes)), sizes),
        np.cumsum(begins) - 1,
        np.concatenate([kept.ranks, *(part.ranks for part in parts)]),
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """The workloads of a layout that go on, and what it has of them."""

    tenants: Sequence[Tenant]
    rows: NDArray[np.int64]
    begins: NDArray[np.bool_]
    sizes: NDArray[np.int64]
    ranks: NDArray[np.int64]


_NONE = np.zeros(0, np.int64)
_NOBODY = _Kept((), _NONE, np.zeros(0, bool), _NONE, _NONE)


def _unfinished(layout: Layout) -> _Kept:
    tenants = [tenant for tenant in layout.tenants if not tenant.finished]
    sizes = np.diff(layout.first)
    begins = np.zeros(len(layout), bool)
    begins[layout.node_first[:-1]] = True
    if len(tenants) == len(layout.tenants):
        return _Kept(tenants, layout.rows, begins, sizes, layout.rank)
    alive = np.array([not tenant.finished for tenant in layout.tenants], bool)
    goes_on = np.repeat(alive, sizes)
    return _Kept(tenants, layout.rows[goes_on], begins[goes_on], sizes[alive], layout.rank[goes_on])


def gpu_type(seat: Seat) -> str:
    """``A100`` for any of its full names; empty where the model is not known."""
    return short_model(seat.model) if seat.model else ""
