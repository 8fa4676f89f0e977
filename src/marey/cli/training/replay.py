"""``marey replay``: run a recorded training step again in software, and see what it is made of."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from marey.app.traces.what_if.replay_documents import make_replay_document
from marey.app.traces.what_if.replays import OpenReplay
from marey.cli.output import Output
from marey.cli.training.prediction_files import score_by_run
from marey.model.errors import InvalidInput
from marey.model.system.percentages import format_percent
from marey.replay.chakra_export import export_chakra
from marey.replay.memory_profile import read_memory
from marey.replay.model import ReplayModel, replay_model
from marey.replay.programs import graph_tables
from marey.replay.report import timeline_table
from marey.trace.dataflow import build_dataflow
from marey.trace.run.trace_run import open_run

MEGABYTE = 1 << 20
DESCRIPTION = """\
Build the data-flow graph of a training run from its traces and replay it, with each rank's mean
operator times and waits recomputed from queues and shared links. Shows how closely the replay
reproduces the recorded step, the critical path, and how busy ranks and links are.

PATH is a file, a folder or a quoted glob of traces, with at least three marked steps."""
EXAMPLES = """\
  marey replay traces/
  marey replay traces/ --plain-step-ms 406.6     the step time without the profiler
  marey replay traces/ --json | jq .critical_path
  marey replay traces/ --out graph/              nodes, edges, links, timeline as Parquet; Chakra"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("path", metavar="PATH", help="a file, a folder or a quoted glob of traces")
    add_model_arguments(parser)
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="write the graph and timeline to this folder"
    )


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what every command that reads a run for replay takes."""
    parser.add_argument(
        "--plain-step-ms",
        metavar="X",
        type=float,
        help="step time without the profiler, if known",
    )
    parser.add_argument(
        "--cache",
        metavar="DIR",
        type=Path,
        help="cache for converted traces (default: the user's cache)",
    )


def read_model(
    path: str | Path, cache: Path | None, plain_step_ms: float | None, out: Output
) -> ReplayModel:
    """Return the replay model of the traces in a folder."""
    return read_opened(path, cache, plain_step_ms, out).model


def read_opened(
    path: str | Path, cache: Path | None, plain_step_ms: float | None, out: Output
) -> OpenReplay:
    """Return the data-flow tables and the replay model of the traces in a folder."""
    with out.progress("reading", 1.0) as bar:
        run = open_run(path, cache=cache, progress=bar.update)
    flow = build_dataflow(run)
    return OpenReplay(flow, replay_model(flow, plain_step_ms))


def run(args: argparse.Namespace, out: Output) -> None:
    """Replay the run and say what was found."""
    opened = read_opened(args.path, args.cache, args.plain_step_ms, out)
    model = opened.model
    score_by_run(model, args.path, out)
    made = make_replay_document(model, read_memory(opened.flow, model))
    document = msgspec.to_builtins(made)
    if args.out is not None:
        _write(model, args.out)
        out.print_note(f"Written to {args.out}.")
    out.answer(document, replay_text(document))


def _write(model: ReplayModel, folder: Path) -> None:
    import pyarrow.parquet as pq

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"Cannot write to {folder}: {error.strerror}.") from error
    recorded = model.recorded
    tables = graph_tables(recorded.graph, recorded.workload.links)
    for name, table in {**tables, "timeline": timeline_table(recorded)}.items():
        pq.write_table(table, folder / f"{name}.parquet")
    for rank, trace in export_chakra(recorded.graph).items():
        (folder / f"chakra.{rank}.json").write_bytes(msgspec.json.encode(trace))


def replay_text(document: dict[str, Any]) -> str:
    """Return the answer for a person."""
    lines = [
        f"{document['ranks']} ranks, {document['strategy']}; {document['tasks']:,} tasks",
        f"step recorded  {document['recorded_step_ms']:10.1f} ms",
        f"step replayed  {document['replayed_step_ms']:10.1f} ms ({document['error']:+.1%})",
        "",
        "critical path of a step",
    ]
    for row in document["critical_path"][:12]:
        who = "between ranks" if row["rank"] is None else f"rank {row['rank']}"
        lines.append(f"  {row['ms']:9.1f} ms  {who:14s} {row['what']}")
    busy = document["busy"]["ranks"]
    lines += ["", "ranks at work  " + "  ".join(format_percent(share) for share in busy)]
    return "\n".join([*lines, *memory_lines(document["memory"])])


def memory_lines(memory: list[dict[str, Any]] | None) -> list[str]:
    """Return lines on the memory of the ranks when it is fullest."""
    if not memory:
        return []
    lines = ["", "memory above the start of a step, at its fullest"]
    for one in memory:
        total = [sum(moment) for moment in zip(*one["levels"].values(), strict=True)]
        at = max(range(len(total)), key=total.__getitem__)
        parts = [(kind, level[at]) for kind, level in one["levels"].items() if level[at]]
        reported = ", ".join(f"{kind} {size / MEGABYTE:.1f}" for kind, size in parts)
        when = f"at {one['times_ms'][at]:.0f} of {one['step_ms']:.0f} ms"
        lines.append(
            f"  rank {one['rank']:<4d}{one['peak_bytes'] / MEGABYTE:9.1f} MB {when}: {reported}"
        )
    return lines
