"""The judge's state as bytes, so that a restart forgets nothing; damaged ones are refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from numpy.typing import NDArray

from marey.rules.court import Court
from marey.rules.definition import Rule
from marey.rules.findings import Finding
from marey.rules.judge import Judge
from marey.rules.tenants import Facts, Seat, Tenant, Tenants
from marey.stats.sketch_codec import pack, unpack
from marey.stats.sketch_tables import SLOT_MS, Need

VERSION = 2


class _TenantDocument(msgspec.Struct, frozen=True):
    facts: Facts
    rows: dict[str, int]
    progress_ms: int | None
    finished: bool


class _State(msgspec.Struct, frozen=True):
    version: int
    newest_ms: int
    metrics: list[str]
    # Slots, slots with bins, and from when on all is seen.
    rings: dict[str, tuple[int, int, int | None]]
    seats: list[Seat | None]
    tenants: list[_TenantDocument]
    events: dict[int, list[tuple[int, str]]]
    # When verdicts last fell, and what the findings' book waits for.
    judged_ms: int | None = None
    book: dict[str, Any] = {}


def dump_court(court: Court) -> list[bytes]:
    """Judge and clock of a court, piece by piece; its findings are kept apart, as documents."""
    court.flush()
    return dump(court.judge, court.judged_ms, court.book.memory())


def load_court(data: bytes, rules: list[Rule], findings: Iterable[Finding], cluster: str) -> Court:
    """A court as it was; ``ValueError`` where the bytes are damaged or of another version."""
    judge, state = _load(data, rules)
    court = Court(cluster=cluster, judge=judge, findings=findings)
    court.judged_ms = state.judged_ms
    court.book.remember(state.book)
    return court


def dump(
    judge: Judge, judged_ms: int | None = None, book: dict[str, Any] | None = None
) -> list[bytes]:
    """Everything that the judge knows, but for the rules themselves."""
    seats, sketches = judge.tenants, judge.sketches
    book_events = seats.events
    judge._reserve()
    rows = seats.room
    state = _State(
        VERSION,
        judge.newest_ms,
        list(sketches.metrics),
        {n: (r.slots, r.binned, sketches.since_ms.get(n)) for n, r in sketches.rings.items()},
        seats.seats,
        [
            _TenantDocument(t.facts, t.rows, t.progress_ms, t.finished)
            for t in seats.by_name.values()
        ],
        book_events,
        judged_ms,
        book or {},
    )
    arrays = {
        "agg": sketches.table.agg[:rows],
        "bins": sketches.table.bins[:rows],
        "first_ms": seats.first_ms[:rows],
        "last_ms": seats.last_ms[:rows],
    }
    for name, ring in sketches.rings.items():
        arrays[f"{name}.agg"] = ring.agg[:rows]
        arrays[f"{name}.bins"] = ring.bins[:rows]
        arrays[f"{name}.held"] = ring.held
    return pack(msgspec.to_builtins(state, str_keys=True), arrays)


def load(data: bytes, rules: list[Rule]) -> Judge:
    """A judge as it was; ``ValueError`` where the bytes are damaged or of another version."""
    return _load(data, rules)[0]


def _load(data: bytes, rules: list[Rule]) -> tuple[Judge, _State]:
    document, arrays = unpack(data)
    try:
        state = msgspec.convert(document, _State, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(f"the kept state is not one of this version: {error}") from None
    if state.version != VERSION:
        raise ValueError(f"the kept state has version {state.version}, not {VERSION}")
    judge = Judge()
    try:
        _restore(judge, state, arrays)
    except (KeyError, IndexError) as error:
        raise ValueError(f"the kept state is damaged: {error}") from None
    judge.use(rules)
    return judge, state


def _restore(judge: Judge, state: _State, arrays: dict[str, NDArray[Any]]) -> None:
    judge.newest_ms = state.newest_ms
    book = judge.tenants
    for place, seat in enumerate(state.seats):
        _sit(book, place, seat)
    for document in state.tenants:
        tenant = Tenant(
            document.facts, dict(document.rows), document.progress_ms, document.finished
        )
        book.restore(tenant)
    book.first_ms[: book.room] = arrays["first_ms"]
    book.last_ms[: book.room] = arrays["last_ms"]
    book.events = {row: list(noted) for row, noted in state.events.items()}
    for metric in state.metrics:
        judge._place(metric)
    table = judge.sketches.table
    if arrays["agg"].shape[:2] != (book.room, len(state.metrics)):
        raise ValueError("the kept state is damaged: its sketches do not fit its rows")
    table.restore(arrays["agg"], arrays["bins"])
    for name, (slots, binned, since) in state.rings.items():
        judge._ring(name, Need((slots - 1) * SLOT_MS, max(binned - 1, 0) * SLOT_MS))
        judge.sketches.rings[name].restore(
            arrays[f"{name}.agg"], arrays[f"{name}.bins"], arrays[f"{name}.held"]
        )
        if since is not None:
            judge.sketches.since_ms[name] = since


def _sit(book: Tenants, place: int, seat: Seat | None) -> None:
    book.append_seat(seat)
    if seat is None:
        book.free.append(place)
