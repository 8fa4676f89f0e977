"""What the pages of a run show, written once: tables of the analysis, intervals of steps.

Ranks are read one after the other and let go, so that memory is bounded by one rank. What is
written is read again by ``view_files``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marey.model.system.atomic_file import write_file
from marey.model.training.symbols import Symbols
from marey.model.training.traces import NO_VALUE
from marey.trace.rank.breakdown import DeviceTime, breakdown_within
from marey.trace.ranks.clocks import aligned
from marey.trace.results import Analysis, Clocks, Dimension, Parallelism
from marey.trace.run.trace_run import TraceRun
from marey.trace.views.making.identity import OperatorNumbers
from marey.trace.views.making.memory_lines import MEMORY_LINES, thin_memory
from marey.trace.views.making.rank_intervals import (
    RankIntervals,
    StepPlace,
    read_intervals,
    write_rank_step,
)
from marey.trace.views.step_files import VIEWS_FORMAT, StepWriter
from marey.trace.views.view_index import ClockFacts, DimensionFacts, ViewIndex
from marey.trace.views.view_tables import BREAKDOWNS, OPERATOR_FACTS

Progress = Callable[[float], None]
Ints = NDArray[np.int64]
# Steps of a run beyond these many are in the tables, but have no intervals to look at.
MOST_STEPS = 200


@dataclass(frozen=True)
class _Steps:
    """When each rank's steps began and ended, on its own clock and on the run's."""

    of_rank: Mapping[int, list[tuple[int, int, int]]]
    spans: Mapping[int, tuple[int, int]]


def write_views(
    run: TraceRun,
    analysis: Analysis,
    folder: Path,
    progress: Progress | None = None,
    *,
    choose: Callable[[Sequence[int]], int] | None = None,
) -> ViewIndex:
    """Write everything that pages of this run need into ``folder``; the index comes last.

    ``choose`` picks the one step of those there are whose intervals are wanted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write_tables(analysis, folder)
    steps = _find_steps(run, analysis)
    wanted = list(steps.spans)[:MOST_STEPS] if choose is None else [choose(list(steps.spans))]
    writers = {
        step: StepWriter(folder / "steps" / str(step), step, *steps.spans[step]) for step in wanted
    }
    book = OperatorNumbers()
    items = _items_by_rank(analysis)
    breakdowns: list[pa.Table] = []
    with pq.ParquetWriter(folder / "memory.parquet", MEMORY_LINES) as memory:
        for done, rank in enumerate(run.ranks, start=1):
            found = read_intervals(run, rank, analysis.clocks, _own_span(steps, rank))
            place = _RankPlace(steps, writers, analysis.parallelism)
            _write_rank(found, place, book, items.get(rank, {}))
            breakdowns.append(_break_down(found.time, rank, steps.of_rank[rank]))
            _write_memory(memory, run, rank, analysis.clocks)
            if progress:
                progress(done / len(run.ranks))
    for writer in writers.values():
        writer.close()
    pq.write_table(pa.concat_tables(breakdowns), folder / "breakdown.parquet")
    pq.write_table(_operator_table(book, run.symbols), folder / "operators.parquet")
    _write_names(run.symbols, folder)
    index = _index(run, analysis, steps)
    write_file(folder / "index.json", msgspec.json.encode(index))
    return index


def _write_tables(analysis: Analysis, folder: Path) -> None:
    tables = {
        "items": analysis.matches.items,
        "members": analysis.matches.members,
        "blame": analysis.blame,
        "critical_path": analysis.critical_path,
        "rank_steps": analysis.steps,
    }
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")


def _find_steps(run: TraceRun, analysis: Analysis) -> _Steps:
    """Find the steps on both clocks; a run without steps has one, number -1, that is all of it."""
    of_rank: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    spans: dict[int, tuple[int, int]] = {}
    for row in analysis.steps.to_pylist():
        rank, step = row["rank"], row["step"]
        of_rank[rank].append((step, row["start_ns"], row["end_ns"]))
        low, high = spans.get(step, (row["start_ns"], row["end_ns"]))
        spans[step] = min(low, row["start_ns"]), max(high, row["end_ns"])
    if not spans:
        for rank in run.ranks:
            low, high = _extent(run, rank, analysis.clocks)
            of_rank[rank].append((NO_VALUE, low, high))
            known = spans.get(NO_VALUE, (low, high))
            spans[NO_VALUE] = min(known[0], low), max(known[1], high)
    ordered = dict(sorted(spans.items(), key=lambda item: item[1]))
    return _Steps({rank: of_rank.get(rank, []) for rank in run.ranks}, ordered)


def _extent(run: TraceRun, rank: int, clocks: Clocks) -> tuple[int, int]:
    events = run.events(rank, ["start_ns", "dur_ns", "on_device"])
    chosen = events["on_device"].to_numpy(zero_copy_only=False)
    start = aligned(clocks, rank, events["start_ns"].to_numpy()[chosen])
    if not len(start):
        return 0, 1
    return int(start.min()), int((start + events["dur_ns"].to_numpy()[chosen]).max()) + 1


def _own_span(steps: _Steps, rank: int) -> tuple[int, int] | None:
    mine = steps.of_rank[rank]
    return (min(s[1] for s in mine), max(s[2] for s in mine)) if mine else None


def _items_by_rank(analysis: Analysis) -> dict[int, dict[int, int]]:
    """Return rank → row of the rank's event table → the matched item it is part of."""
    members = analysis.matches.members
    found: dict[int, dict[int, int]] = defaultdict(dict)
    columns = (members[name].to_pylist() for name in ("rank", "row", "item"))
    for rank, row, item in zip(*columns, strict=True):
        found[rank][row] = item
    return found


@dataclass(frozen=True)
class _RankPlace:
    """Where the parts of a rank go."""

    steps: _Steps
    writers: Mapping[int, StepWriter]
    parallelism: Parallelism


def _write_rank(
    found: RankIntervals, where: _RankPlace, book: OperatorNumbers, items: dict[int, int]
) -> None:
    for step, low, high in where.steps.of_rank[found.rank]:
        if step not in where.writers:
            continue
        stage = int(where.parallelism.stages.get(found.rank, 0))
        count = where.parallelism.micro_batches
        place = StepPlace(where.writers[step], stage, (low, high), count)
        write_rank_step(found, place, book, items)


def _break_down(time: DeviceTime, rank: int, steps: list[tuple[int, int, int]]) -> pa.Table:
    """Return where the rank's time went in each of its steps."""
    found = breakdown_within(time, [s[1] for s in steps], [s[2] for s in steps])
    columns: dict[str, Any] = {
        "rank": np.full(len(steps), rank, np.int32),
        "step": np.array([s[0] for s in steps], np.int32),
    }
    for name, source in (
        ("span_ms", "span_ms"),
        ("compute_ms", "compute_ms"),
        ("exposed_communication_ms", "exposed_comm_ms"),
        ("exposed_copy_ms", "exposed_memcpy_ms"),
        ("idle_peers_ms", "idle_peers_ms"),
        ("idle_host_ms", "idle_host_ms"),
        ("idle_input_ms", "idle_input_ms"),
    ):
        columns[name] = found[source].combine_chunks()
    rest = ("idle_start_ms", "idle_other_ms", "idle_unexplained_ms")
    columns["idle_other_ms"] = sum(found[source].to_numpy() for source in rest)
    return pa.table(columns).cast(BREAKDOWNS)


def _write_memory(writer: pq.ParquetWriter, run: TraceRun, rank: int, clocks: Clocks) -> None:
    memory = run.memory(rank)
    if memory.num_rows:
        time = aligned(clocks, rank, memory["time_ns"].to_numpy())
        writer.write_table(thin_memory(memory, rank, time))


def _operator_table(book: OperatorNumbers, symbols: Symbols) -> pa.Table:
    rows = [
        {
            "operator": number,
            "name": symbols.text(facts.name),
            "module": symbols.text(facts.module),
            "kind": facts.kind,
            "stage": facts.stage,
            "phase": facts.phase,
            "position": facts.position,
        }
        for number, facts in enumerate(book.facts)
    ]
    return pa.Table.from_pylist(rows, schema=OPERATOR_FACTS)


def _write_names(symbols: Symbols, folder: Path) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in symbols.texts()]
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), folder / "names.parquet")


def _index(run: TraceRun, analysis: Analysis, steps: _Steps) -> ViewIndex:
    infos = {rank: run.info(rank) for rank in run.ranks}
    world = max((info.world_size or 0 for info in infos.values()), default=0)
    parallelism = analysis.parallelism
    stages, replicas = parallelism.stages, parallelism.replicas
    shards = _shards(run.ranks, stages, replicas)
    return ViewIndex(
        format=VIEWS_FORMAT,
        ranks=[
            {
                "rank": rank,
                "host": infos[rank].host,
                "stage": int(stages.get(rank, 0)),
                "replica": int(replicas.get(rank, 0)),
                "shard": shards[rank],
            }
            for rank in run.ranks
        ],
        steps=[
            {"step": step, "start_ns": low, "end_ns": high}
            for step, (low, high) in steps.spans.items()
        ],
        clock=_describe_clocks(analysis.clocks),
        parallelism={
            "dimensions": [_describe_dimension(d) for d in parallelism.dimensions],
            "micro_batches": parallelism.micro_batches,
            "schedule": parallelism.schedule,
            "confidence": parallelism.confidence,
        },
        notes=[f"{n.file}: {n.text}" if n.file else n.text for n in run.notes]
        + list(analysis.notes),
        missing=sorted(set(range(world)) - set(run.ranks)) if world <= 1 << 20 else [],
    )


def _describe_clocks(clocks: Clocks) -> ClockFacts:
    return ClockFacts(
        ranks=list(clocks.ranks),
        hosts=list(clocks.hosts),
        offset_us=list(clocks.offset_us),
        drift_ppm=list(clocks.drift_ppm),
        residual_us=list(clocks.residual_us),
        origin_ns=clocks.origin_ns,
        error_us=clocks.error_us,
    )


def _describe_dimension(found: Dimension) -> DimensionFacts:
    return DimensionFacts(
        kind=found.kind,
        size=found.size,
        groups=[list(group) for group in found.groups],
        confidence=found.confidence,
        evidence=found.evidence,
    )


def _shards(
    ranks: list[int], stages: Mapping[int, int], replicas: Mapping[int, int]
) -> dict[int, int]:
    """Return the place of a rank among those of its stage and replica."""
    seen: dict[tuple[int, int], int] = defaultdict(int)
    shards = {}
    for rank in ranks:
        key = (int(stages.get(rank, 0)), int(replicas.get(rank, 0)))
        shards[rank] = seen[key]
        seen[key] += 1
    return shards
