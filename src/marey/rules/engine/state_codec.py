"""The evaluator's state as bytes, so that a restart forgets nothing; damaged ones are refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from numpy.typing import NDArray

from marey.rules.definition import Rule
from marey.rules.engine.allocations import AllocationRows, Facts, HeldGpu, RunningWorkload
from marey.rules.engine.evaluation_loop import EvaluationLoop
from marey.rules.engine.evaluator import Evaluator
from marey.rules.engine.findings import Finding
from marey.stats.sketches.sketch_codec import pack, unpack
from marey.stats.sketches.sketch_tables import SLOT_MS, WindowNeed

VERSION = 2


class _RunningDocument(msgspec.Struct, frozen=True):
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
    # Names on disk are older than these.
    events: dict[int, list[tuple[int, str]]]
    held_gpus: list[HeldGpu | None] = msgspec.field(name="seats")
    workloads: list[_RunningDocument] = msgspec.field(name="tenants")
    # When verdicts last fell, and what the findings' book waits for.
    judged_ms: int | None = None
    book: dict[str, Any] = {}


def dump_loop(loop: EvaluationLoop) -> list[bytes]:
    """Return evaluator and clock of a loop, piece by piece.

    Its findings are kept apart, as documents.
    """
    loop.flush()
    return dump(loop.evaluator, loop.judged_ms, loop.book.memory())


def load_loop(
    data: bytes, rules: list[Rule], findings: Iterable[Finding], cluster: str
) -> EvaluationLoop:
    """Return a loop as it was; ``ValueError`` where the bytes are damaged or of another version."""
    evaluator, state = _load(data, rules)
    loop = EvaluationLoop(cluster=cluster, evaluator=evaluator, findings=findings)
    loop.judged_ms = state.judged_ms
    loop.book.remember(state.book)
    return loop


def dump(
    evaluator: Evaluator, judged_ms: int | None = None, book: dict[str, Any] | None = None
) -> list[bytes]:
    """Return everything that the evaluator knows, but for the rules themselves."""
    allocations, sketches = evaluator.allocations, evaluator.sketches
    evaluator.reserve()
    rows = allocations.room
    state = _State(
        version=VERSION,
        newest_ms=evaluator.newest_ms,
        metrics=list(sketches.metrics),
        rings={n: (r.slots, r.binned, sketches.since_ms.get(n)) for n, r in sketches.rings.items()},
        held_gpus=allocations.held_gpus,
        workloads=[
            _RunningDocument(w.facts, w.rows, w.progress_ms, w.finished)
            for w in allocations.by_name.values()
        ],
        events=allocations.events,
        judged_ms=judged_ms,
        book=book or {},
    )
    arrays = {
        "agg": sketches.table.agg[:rows],
        "bins": sketches.table.bins[:rows],
        "first_ms": allocations.first_ms[:rows],
        "last_ms": allocations.last_ms[:rows],
    }
    for name, ring in sketches.rings.items():
        arrays[f"{name}.agg"] = ring.agg[:rows]
        arrays[f"{name}.bins"] = ring.bins[:rows]
        arrays[f"{name}.held"] = ring.held
    return pack(msgspec.to_builtins(state, str_keys=True), arrays)


def load(data: bytes, rules: list[Rule]) -> Evaluator:
    """Return an evaluator as it was.

    ``ValueError`` where the bytes are damaged or of another version.
    """
    return _load(data, rules)[0]


def _load(data: bytes, rules: list[Rule]) -> tuple[Evaluator, _State]:
    document, arrays = unpack(data)
    try:
        state = msgspec.convert(document, _State, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(f"the kept state is not one of this version: {error}") from None
    if state.version != VERSION:
        raise ValueError(f"the kept state has version {state.version}, not {VERSION}")
    evaluator = Evaluator()
    try:
        _restore(evaluator, state, arrays)
    except (KeyError, IndexError) as error:
        raise ValueError(f"the kept state is damaged: {error}") from None
    evaluator.use(rules)
    return evaluator, state


def _restore(evaluator: Evaluator, state: _State, arrays: dict[str, NDArray[Any]]) -> None:
    evaluator.newest_ms = state.newest_ms
    book = evaluator.allocations
    for place, held_gpu in enumerate(state.held_gpus):
        _restore_held(book, place, held_gpu)
    for document in state.workloads:
        running = RunningWorkload(
            document.facts, dict(document.rows), document.progress_ms, document.finished
        )
        book.restore(running)
    book.first_ms[: book.room] = arrays["first_ms"]
    book.last_ms[: book.room] = arrays["last_ms"]
    book.events = {row: list(noted) for row, noted in state.events.items()}
    for metric in state.metrics:
        evaluator._place(metric)
    table = evaluator.sketches.table
    if arrays["agg"].shape[:2] != (book.room, len(state.metrics)):
        raise ValueError("the kept state is damaged: its sketches do not fit its rows")
    table.restore(arrays["agg"], arrays["bins"])
    for name, (slots, binned, since) in state.rings.items():
        evaluator._open_ring(name, WindowNeed((slots - 1) * SLOT_MS, max(binned - 1, 0) * SLOT_MS))
        evaluator.sketches.rings[name].restore(
            arrays[f"{name}.agg"], arrays[f"{name}.bins"], arrays[f"{name}.held"]
        )
        if since is not None:
            evaluator.sketches.since_ms[name] = since


def _restore_held(book: AllocationRows, place: int, held_gpu: HeldGpu | None) -> None:
    book.append_held_gpu(held_gpu)
    if held_gpu is None:
        book.free.append(place)
