"""Questions about a converted run, answered with documents and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from marey.app.queries.table_queries import Reply
from marey.app.traces.children.report_process import RunSide, make_difference
from marey.app.traces.trace_documents import (
    RunRecord,
    TraceDifference,
    TraceDimension,
    TraceParallelism,
    TraceRank,
    TraceRunDetail,
    TraceStep,
    TraceVerdict,
    TraceVerdicts,
)
from marey.app.traces.trace_library import TraceLibrary
from marey.app.traces.what_if.word_controls import suggest_fix
from marey.model.errors import InvalidInput, NotFound, shown, unknown
from marey.model.predicates import Predicate
from marey.model.training.selections import parse_selection, select_rows
from marey.trace.report.verdict_words import advice, sentence, title
from marey.trace.results import VerdictRecord
from marey.trace.run.trace_run import spans
from marey.trace.views.bands import BandWindow, list_bands, list_time_spans
from marey.trace.views.cells import CellWindow
from marey.trace.views.run_tables import (
    list_breakdowns,
    list_collectives,
    list_communication_nodes,
    list_communication_pairs,
    list_memory,
    list_names,
    list_steps,
    list_waits,
)
from marey.trace.views.view_files import RunViews, StepPictures
from marey.trace.views.view_index import ClockFacts, ParallelismFacts, RankFacts
from marey.trace.views.view_kinds import KIND_NAMES

# A list of ranks in an address names at most this many.
MOST_RANKS = 20_000


def describe_run(library: TraceLibrary, run: str) -> TraceRunDetail:
    """Return a run with what its pages need first."""
    library.open_demo(run)
    record = library.get(run)
    summary = library.summarise(record)
    try:
        views = library.views(run)
        index, first_step = views.index, views.first_step
    except NotFound:
        return TraceRunDetail(
            run=summary,
            ranks=[],
            steps=[],
            parallelism=None,
            clock_error_us=None,
            first_step=None,
            kinds=list(KIND_NAMES),
            notes=[],
        )
    steps = [
        TraceStep(row["step"], row["start_ns"], row["end_ns"] - row["start_ns"])
        for row in index.steps
    ]
    return TraceRunDetail(
        run=summary,
        ranks=_ranks(index.ranks, index.clock, index.missing),
        steps=steps,
        parallelism=_parallelism(index.parallelism, index.ranks),
        clock_error_us=index.clock["error_us"],
        first_step=first_step,
        kinds=list(KIND_NAMES),
        notes=library.restore_names(run, index.notes),
    )


def _ranks(rows: list[RankFacts], clock: ClockFacts, missing: list[int]) -> list[TraceRank]:
    place = {rank: n for n, rank in enumerate(clock["ranks"])}
    traced = [
        TraceRank(
            **row,
            missing=False,
            clock_offset_us=clock["offset_us"][place[row["rank"]]]
            if row["rank"] in place
            else None,
            clock_residual_us=clock["residual_us"][place[row["rank"]]]
            if row["rank"] in place
            else None,
        )
        for row in rows
    ]
    absent = [
        TraceRank(
            rank=rank,
            host="",
            stage=-1,
            replica=-1,
            shard=-1,
            missing=True,
            clock_offset_us=None,
            clock_residual_us=None,
        )
        for rank in missing
    ]
    return traced + absent


def _parallelism(found: ParallelismFacts, ranks: list[RankFacts]) -> TraceParallelism:
    return TraceParallelism(
        dimensions=[
            TraceDimension(
                kind=d["kind"],
                size=d["size"],
                groups=[list(g) for g in d["groups"]],
                confidence=d["confidence"],
                evidence=d["evidence"],
            )
            for d in found["dimensions"]
        ],
        stages=len({row["stage"] for row in ranks}),
        micro_batches=found["micro_batches"],
        schedule=found["schedule"],
        confidence=found["confidence"],
    )


def list_verdicts(library: TraceLibrary, run: str) -> TraceVerdicts:
    """Return the verdicts on a run in words, each with the selection that shows it."""
    record = library.get(run)
    index = library.views(run).index
    hosts = {row["rank"]: row["host"] for row in index.ranks}
    whole_ms = sum(row["end_ns"] - row["start_ns"] for row in index.steps) / 1e6
    return TraceVerdicts([_verdict(v, hosts, whole_ms, record) for v in record.verdicts])


def _verdict(
    verdict: VerdictRecord, hosts: Mapping[int, str], whole_ms: float, record: RunRecord
) -> TraceVerdict:
    return TraceVerdict(
        **verdict,
        title=title(verdict),
        sentence=sentence(verdict, hosts, world=record.ranks),
        advice=advice(verdict),
        share=min(verdict["recoverable_ms"] / whole_ms, 1.0) if whole_ms > 0 else None,
        where=select_evidence(verdict),
        what_if=suggest_fix(verdict["kind"], verdict["ranks"]),
    )


def select_evidence(verdict: Mapping[str, Any]) -> str:
    """Return the selection of ranks, steps and operators that a verdict names.

    >>> select_evidence({"ranks": [3, 4, 5], "steps": [7], "operators": ["aten::mm"]})
    'rank=3-5 and step=7 and name="aten::mm"'
    """
    parts = []
    for field, values in (("rank", verdict["ranks"]), ("step", verdict["steps"])):
        if values:
            parts.append(f"{field}={spans(sorted(values)).replace(', ', ',')}")
    names = [name for name in verdict["operators"] if len(name) <= 200][:5]
    if names:
        quoted = (name.replace("\\", "\\\\").replace('"', '\\"') for name in names)
        parts.append("name=" + ",".join(f'"{name}"' for name in quoted))
    return " and ".join(parts)


def select_path(views: RunViews, where: Predicate) -> pa.Table:
    """Return the critical path's pieces that a selection means."""
    path = views.table("critical_path")
    stage = [views.stages.get(rank, 0) for rank in path["rank"].to_pylist()]
    return select_rows(path, where, stage=stage, kind=path["activity"], operator=path["name"])


RUN_TABLES: Mapping[str, Callable[[RunViews, Predicate], pa.Table]] = {
    "steps": list_steps,
    "breakdown": list_breakdowns,
    "collectives": list_collectives,
    "waits": list_waits,
    "communication": list_communication_pairs,
    "communication/nodes": list_communication_nodes,
    "memory": list_memory,
    "kernels": lambda views, where: list_names(views, where, column="name"),
    "operators": lambda views, where: list_names(views, where, column="host_operator"),
    "critical-path": select_path,
}


def ask_table(views: RunViews, name: str, *, where: str, sort: str, limit: int) -> Reply:
    """Return one of a run's tables, filtered, sorted and cut."""
    table = RUN_TABLES[name](views, parse_selection(where))
    total = table.num_rows
    if sort:
        column = sort.removeprefix("-")
        if column not in table.column_names:
            raise InvalidInput(unknown("column", column, table.column_names))
        table = table.sort_by([(column, "descending" if sort.startswith("-") else "ascending")])
    return Reply(table.slice(0, limit), {"total": total})


def draw(
    pictures: StepPictures, window: CellWindow, *, order: str, ranks: str, place: Any
) -> bytes:
    """Return a picture: of named ranks, or of positions ``place`` (first, last) of an order."""
    unit = pictures.view.index.unit_ns
    if ranks:
        return pictures.cells_of(parse_ranks(ranks), window).encode(unit)
    first, last = place
    rows = len(pictures.view.index.ranks)
    if first >= min(last, rows):
        raise InvalidInput(
            f"No row stands at positions {first} to {last}; this step has positions 0-{rows}."
        )
    return pictures.cells(order, first, last, window).encode(unit)


def parse_ranks(text: str, field: str = "ranks") -> list[int]:
    """Return the numbers of a list such as ``0,5,9-12``, in its order; ``field`` is what errors
    call it.

    >>> parse_ranks("3,0-2")
    [3, 0, 1, 2]
    """
    ranks: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or len(first + last) > 18:
            raise InvalidInput(f"{field} has '{shown(part)}'; allowed: a list such as 0,5,9-12.")
        count = int(last or first) - int(first) + 1
        if count < 1:
            raise InvalidInput(f"{field} has '{shown(part)}'; allowed: the smaller number first.")
        if count + len(ranks) > MOST_RANKS:
            raise InvalidInput(f"{field} names more than {MOST_RANKS:,} numbers.")
        ranks += range(int(first), int(first) + count)
    return ranks


def ask_rows(pictures: StepPictures, order: str) -> Reply:
    """Return the rows of the Marey view."""
    index = pictures.view.index
    clock = pictures.run.index.clock
    facts = {
        "step": index.step,
        "steps": index.list_steps(),
        "step_starts_ns": [start_ns - index.start_ns for start_ns in index.list_starts_ns()],
        "start_ns": index.start_ns,
        "end_ns": index.end_ns,
        "clock_error_us": clock["error_us"],
        "stages": len(set(index.stages)),
        "operators": pictures.run.count_operators(),
        "clusters": int(pictures.behaviour.cluster.max(initial=-1)) + 1,
        "kinds": list(KIND_NAMES),
    }
    return Reply(pictures.rows(order), facts)


def ask_bands(pictures: StepPictures, window: BandWindow, *, ranks: str, where: str) -> Reply:
    """Return the intervals of visible rows."""
    chosen = parse_ranks(ranks) if ranks else pictures.view.index.ranks[:256]
    found, left = list_bands(
        pictures.view, chosen, window, names=pictures.run.names, where=parse_selection(where)
    )
    return Reply(found, {"left_out": left, "step": pictures.view.index.step})


def ask_time_spans(pictures: StepPictures, window: BandWindow, *, by: str) -> Reply:
    """Return the spread of each operator over stages or behaviour clusters."""
    if by not in ("stage", "cluster"):
        raise InvalidInput(unknown("grouping", by, ("stage", "cluster")))
    stages = np.array(pictures.view.index.stages, np.int64)
    groups = stages if by == "stage" else pictures.behaviour.cluster
    found, left = list_time_spans(pictures.view, groups, window, pictures.run.names)
    return Reply(found, {"left_out": left, "step": pictures.view.index.step})


def compare_runs(
    library: TraceLibrary, a: str, b: str, *, a_steps: list[int] | None, b_steps: list[int] | None
) -> TraceDifference:
    """Return how run ``b`` differs from run ``a``; read in a process with limits."""
    sides = []
    for run, steps in ((a, a_steps), (b, b_steps)):
        library.views(run)
        paths, cache = library.trace_paths(run)
        sides.append(RunSide(paths, str(cache), steps))
    return msgspec.convert({"a": a, "b": b, **make_difference(*sides)}, TraceDifference)
