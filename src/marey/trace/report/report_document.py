"""Everything Marey can say about a run, as one JSON document; see ``report_schema.json``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from marey.model.errors import Conflict
from marey.trace.analysis import Analysis, analyse
from marey.trace.rank.steps import step_statistics
from marey.trace.ranks.bandwidth import bandwidth_table
from marey.trace.report.rank_report import (
    NO_WAITS,
    CollectiveWaits,
    RankReport,
    add_names,
    report_rank,
)
from marey.trace.report.report_types import (
    BlameRecord,
    BlameSum,
    ClockRecord,
    CollectivesRecord,
    CriticalPathRecord,
    CulpritRecord,
    LaunchRecord,
    MatchedItem,
    NoteRecord,
    ParallelismRecord,
    RankRecord,
    ReportDocument,
    RunFacts,
    SlowdownRecord,
    StepRecord,
)
from marey.trace.results import BlameRow, Verdict, VerdictKind, VerdictRecord, make_verdict_record
from marey.trace.run.trace_run import TraceRun, open_run

T = TypeVar("T")

SCHEMA_VERSION = 1
TOP_NAMES = 50
TOP_BLAME = 50
TOP_PATH = 100

Progress = Callable[[float], None]
Cancelled = Callable[[], bool]


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema that every report document satisfies."""
    text = files("marey.trace.report").joinpath("report_schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def report_document(
    source: TraceRun | str | Path,
    cache: Path | None = None,
    progress: Progress | None = None,
    cancelled: Cancelled | None = None,
    *,
    analysis: Analysis | None = None,
) -> ReportDocument:
    """Open (if it is a path), analyse and break down a run; the document is plain JSON values.

    ``progress`` is called with a share from 0 to 1; when ``cancelled`` says so, the work stops
    between ranks with a ``Conflict``. Whoever has the ``analysis`` already hands it in.
    """
    advance = _Stages(progress, cancelled)
    run = source if isinstance(source, TraceRun) else _open_details(source, cache, advance)
    advance(0.5)
    analysis = analysis or analyse(run, lambda _, share: advance(0.5 + 0.25 * share))
    reports = []
    waits = waits_by_rank(analysis.matches.members)
    for done, rank in enumerate(run.ranks, start=1):
        reports.append(report_rank(run, rank, waits.get(rank, NO_WAITS)))
        advance(0.75 + 0.25 * done / len(run.ranks))
    document: ReportDocument = clean(assemble(run, analysis, reports))
    return document


NO_TIMES = "This trace has no times, so nothing is judged."
NO_WORK = (
    "Neither work of devices nor operators that stand for it were recorded, so nothing is judged."
)


class _Stages:
    """One progress for several stages, and the one place that looks for a cancellation."""

    def __init__(self, progress: Progress | None, cancelled: Cancelled | None) -> None:
        self._progress, self._cancelled = progress, cancelled

    def __call__(self, share: float) -> None:
        if self._cancelled and self._cancelled():
            raise Conflict("The trace report was cancelled.")
        if self._progress:
            self._progress(share)


def _open_details(path: str | Path, cache: Path | None, advance: _Stages) -> TraceRun:
    return open_run(path, cache=cache, progress=lambda share: advance(0.5 * share))


def assemble(run: TraceRun, analysis: Analysis, reports: list[RankReport]) -> ReportDocument:
    """Return the document from its parts."""
    return {
        "schema": SCHEMA_VERSION,
        "marey": version("marey"),
        "run": _run_facts(run, analysis, reports),
        "verdicts": _verdicts(run, analysis, reports),
        "ranks": [_rank(r) for r in reports],
        "collectives": _collectives(analysis),
        "clock": _clock(analysis),
        "clock_error_us": analysis.clocks.error_us,
        "parallelism": _parallelism(analysis),
        "slowdown": _slowdown(analysis),
        "steps": _steps(reports),
        "kernels": add_names([r.kernels for r in reports], "total_ms", TOP_NAMES),
        "operators": add_names(_operators(reports), "device_ms", TOP_NAMES),
        "launches": [_launches(r) for r in reports],
        "memory": [{"rank": r.rank, "devices": r.memory} for r in reports if r.memory],
        "bandwidth": bandwidth_table(analysis.matches.items).to_pylist(),
        "culprits": _culprits(analysis.blame),
        "blame": _blame(analysis.blame),
        "critical_path": _critical_path(analysis.critical_path),
        "notes": [
            *(NoteRecord(file=n.file, text=n.text) for n in run.notes),
            *(NoteRecord(file="", text=text) for text in analysis.notes),
        ],
    }


def _rank(report: RankReport) -> RankRecord:
    return {
        "rank": report.rank,
        "host": report.host,
        "process": report.process,
        "device": report.device,
        **report.breakdown,
    }


def _find_repeated_hosts(reports: list[RankReport]) -> set[int]:
    """Return the ranks whose host another device of their process already reports."""
    seen: set[int] = set()
    repeated = set()
    for report in reports:
        if report.process is not None and report.process in seen:
            repeated.add(report.rank)
        elif report.process is not None:
            seen.add(report.process)
    return repeated


def _launches(report: RankReport) -> LaunchRecord:
    found = report.launches
    return {
        "rank": report.rank,
        "linked": found.linked,
        "unlinked": found.unlinked,
        "delay_median_us": found.delay_median_us,
        "delay_p95_us": found.delay_p95_us,
        "delay_max_us": found.delay_max_us,
        "call_median_us": found.call_median_us,
        "shorter_than_launch": found.shorter_than_launch,
        "queue_mean": found.queue_mean,
        "queue_max": found.queue_max,
        "queue_empty": found.queue_empty,
    }


def _operators(reports: list[RankReport]) -> list[pa.Table]:
    """Return the operators of every rank; what a host did for several devices counts once."""
    repeated = _find_repeated_hosts(reports)
    return [_without_host(r.operators) if r.rank in repeated else r.operators for r in reports]


def _without_host(operators: pa.Table) -> pa.Table:
    for index, name in enumerate(operators.column_names):
        if name.startswith("host_") or name == "count":
            zeros = pa.array(np.zeros(operators.num_rows)).cast(operators.schema.field(index).type)
            operators = operators.set_column(index, operators.schema.field(index), zeros)
    return operators


def _run_facts(run: TraceRun, analysis: Analysis, reports: list[RankReport]) -> RunFacts:
    infos = [run.info(rank) for rank in run.ranks]
    durations = [row["duration_ms"] for r in reports for row in r.steps]
    repeated = _find_repeated_hosts(reports)
    return {
        "ranks": len(run.ranks),
        "world_size": max((i.world_size or 0 for i in infos), default=0) or len(run.ranks),
        "hosts": len({r.host for r in reports}),
        "frameworks": sorted({i.framework for i in infos}),
        "backends": sorted({i.backend for i in infos if i.backend}),
        "devices": sorted({i.device_name for i in infos if i.device_name}),
        "has_device": all(i.has_device for i in infos),
        "events": sum(r.device_events if r.rank in repeated else r.events for r in reports),
        "span_ms": max((r.breakdown["span_ms"] for r in reports), default=0.0),
        "steps": len({row["step"] for r in reports for row in r.steps}),
        "step_time": step_statistics(durations),
        "recorded_by_marey": any(i.clock_sync for i in infos),
    }


def _verdicts(run: TraceRun, analysis: Analysis, reports: list[RankReport]) -> list[VerdictRecord]:
    if any(report.breakdown["span_ms"] > 0 for report in reports):
        return [make_verdict_record(v) for v in analysis.verdicts]
    # Execution traces have an order but no times: "nothing is wrong" would be a guess.
    timed = any(run.info(rank).timed for rank in run.ranks)
    return [
        make_verdict_record(Verdict(VerdictKind.NONE, evidence=(NO_WORK if timed else NO_TIMES,)))
    ]


def _collectives(analysis: Analysis) -> CollectivesRecord:
    matches = analysis.matches
    waits = _waits_by_item(matches.members)
    names = (
        *("name", "group", "bytes", "step", "last_rank", "certain", "skew_us", "transfer_us"),
        *("participants", "expected", "point_to_point", "method", "confidence"),
        "last_arrival_ns",
    )
    items: list[MatchedItem] = matches.items.select(names).to_pylist()
    return {
        "matched": matches.matched,
        "unmatched": matches.unmatched,
        "method": matches.method,
        "confidence": matches.confidence,
        "items": [
            {**item, "wait_us": waits.get(number, {})}
            for number, item in zip(matches.items["item"].to_pylist(), items, strict=True)
        ],
    }


def _waits_by_item(members: pa.Table) -> dict[int, dict[str, float]]:
    waits: dict[int, dict[str, float]] = {}
    columns = (members[n].to_pylist() for n in ("item", "rank", "wait_us"))
    for item, rank, wait_us in zip(*columns, strict=True):
        if item >= 0:
            waits.setdefault(item, {})[str(rank)] = wait_us
    return waits


def waits_by_rank(members: pa.Table) -> dict[int, CollectiveWaits]:
    """Return for each rank, how long each of its matched communications waited for the last to
    come.
    """
    joined = (members["item"].to_numpy() >= 0) & (members["row"].to_numpy() >= 0)
    rank = members["rank"].to_numpy()[joined]
    row = members["row"].to_numpy()[joined]
    wait_us = members["wait_us"].to_numpy(zero_copy_only=False)[joined]
    wait_ns = (np.nan_to_num(np.maximum(wait_us, 0)) * 1e3).astype(np.int64)
    order = np.argsort(rank, kind="stable")
    ranks, first = np.unique(rank[order], return_index=True)
    parts = zip(np.split(row[order], first[1:]), np.split(wait_ns[order], first[1:]), strict=True)
    return (
        {int(r): CollectiveWaits(*part) for r, part in zip(ranks, parts, strict=True)}
        if len(ranks)
        else {}
    )


def _clock(analysis: Analysis) -> list[ClockRecord]:
    clocks = analysis.clocks
    columns = (clocks.ranks, clocks.hosts, clocks.offset_us, clocks.drift_ppm, clocks.residual_us)
    return [
        {
            "rank": rank,
            "host": host,
            "offset_us": offset_us,
            "drift_ppm": drift_ppm,
            "residual_us": residual_us,
        }
        for rank, host, offset_us, drift_ppm, residual_us in zip(*columns, strict=True)
    ]


def _parallelism(analysis: Analysis) -> ParallelismRecord:
    found = analysis.parallelism
    return {
        "dimensions": [
            {
                "kind": d.kind,
                "size": d.size,
                "groups": [list(g) for g in d.groups],
                "confidence": d.confidence,
                "evidence": d.evidence,
            }
            for d in found.dimensions
        ],
        "stages": _by_text(found.stages),
        "replicas": _by_text(found.replicas),
        "micro_batches": found.micro_batches,
        "schedule": found.schedule,
        "confidence": found.confidence,
    }


def _slowdown(analysis: Analysis) -> SlowdownRecord | None:
    found = analysis.slowdown
    if found is None:
        return None
    return {
        "S": found.S,
        "M_W": found.M_W,
        "M_S": found.M_S,
        "waste": found.waste,
        "step_ms": found.step_ms,
        "ideal_ms": found.ideal_ms,
        "launch": found.launch,
        "by_type": _by_text(found.by_type),
        "by_stage": _by_text(found.by_stage),
        "by_replica": _by_text(found.by_replica),
        "by_worker": _by_text(found.by_worker),
        "by_step": _by_text(found.by_step),
    }


def _steps(reports: list[RankReport]) -> list[StepRecord]:
    return [{"rank": r.rank, **row} for r in reports for row in r.steps]


def _blame(table: pa.Table) -> list[BlameRecord]:
    """Return who made whom wait and by what, over all steps.

    The operator is that of the worst step.
    """
    found: list[BlameRecord] = [
        {"victim": victim, **_sum_rows(culprit, cause, rows)}
        for (culprit, victim, cause), rows in _blame_by(table, "culprit", "victim", "cause")
    ]
    return found[:TOP_BLAME]


def _culprits(table: pa.Table) -> list[CulpritRecord]:
    """Return the blame summed over all who waited."""
    found: list[CulpritRecord] = [
        {"victims": len({row["victim"] for row in rows}), **_sum_rows(culprit, cause, rows)}
        for (culprit, cause), rows in _blame_by(table, "culprit", "cause")
    ]
    return found[:TOP_BLAME]


def _sum_rows(culprit: int, cause: str, rows: list[BlameRow]) -> BlameSum:
    return {
        "culprit": culprit,
        "cause": cause,
        "operator": rows[0]["operator"],
        "steps": len({row["step"] for row in rows}),
        "gpu_seconds": sum(row["gpu_seconds"] for row in rows),
    }


def _blame_by(table: pa.Table, *names: str) -> list[tuple[tuple[Any, ...], list[BlameRow]]]:
    """Return rows of blame by these columns, in each the worst first; the largest sum first."""
    found: dict[tuple[Any, ...], list[BlameRow]] = {}
    for row in _top(table, "gpu_seconds", table.num_rows):
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return sorted(found.items(), key=lambda pair: -sum(row["gpu_seconds"] for row in pair[1]))


def _critical_path(path: pa.Table) -> CriticalPathRecord:
    """Return shares of the path by activity and by rank, and its longest pieces."""
    if not path.num_rows:
        return {"total_ms": 0.0, "by_activity": {}, "by_rank": {}, "longest": []}
    ms = path["dur_ns"].to_numpy() / 1e6
    return {
        "total_ms": float(ms.sum()),
        "by_activity": _sums(path["activity"].to_pylist(), ms),
        "by_rank": _sums(path["rank"].to_pylist(), ms),
        "longest": [
            {
                "rank": row["rank"],
                "step": row["step"],
                "activity": row["activity"],
                "name": row["name"],
                "duration_ms": row["dur_ns"] / 1e6,
            }
            for row in _top(path, "dur_ns", TOP_PATH)
        ],
    }


def _sums(keys: list[Any], ms: Any) -> dict[str, float]:
    sums: dict[str, float] = {}
    for key, value in zip(keys, ms.tolist(), strict=True):
        sums[str(key)] = sums.get(str(key), 0.0) + value
    return dict(sorted(sums.items(), key=lambda pair: -pair[1]))


def _top(table: pa.Table, column: str, count: int) -> list[Any]:
    rows: list[Any] = table.sort_by([(column, "descending")]).slice(0, count).to_pylist()
    return rows


def _by_text(mapping: Mapping[Any, T]) -> dict[str, T]:
    return {str(key): value for key, value in mapping.items()}


# Most of a document: nothing is to be cleaned in these.
_PLAIN = frozenset({str, int, bool, type(None)})


def clean(value: Any) -> Any:
    """Return plain JSON values: numpy scalars become numbers; what is not a number becomes null."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        return {key: clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        # A nanosecond in milliseconds: more digits would be noise, and half of the document. What
        # is smaller than that is no time but a probability.
        return round(value, 6) if abs(value) >= 1e-3 else float(f"{value:.6g}")
    return value
