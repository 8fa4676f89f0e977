"""``marey diagnose``: what is wrong with a workload, where, since when, what to try."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from marey.app.diagnosis.comparison import AskComparison
from marey.app.diagnosis.diagnosis_query import AskDiagnosis
from marey.app.diagnosis.diagnosis_report import AskReport
from marey.cli.output import Output
from marey.cli.store_arguments import add_span, add_store, ask_place, span_of
from marey.diagnose.report import counted, describe_unjudged, evidence_text
from marey.model.errors import InvalidInput, shown
from marey.model.system.percentages import format_percent
from marey.model.times import parse_time

DESCRIPTION = """\
Diagnose a workload: the kind of fault, exactly which GPUs, since when, the evidence, the
confidence and what to try next; how it ended, or why it has not started.
"Nothing is wrong" is an answer too, and so is "too short to tell".
"""
EXAMPLES = """\
  marey diagnose 4711 --store site.duckdb
  marey diagnose 4711 --from 2026-11-15T08:00:00Z --to 2026-11-15T09:00:00Z --json
  marey diagnose 4711 --metric mem_used
  marey diagnose 4711 --against 4708
  marey diagnose 4711 --html report.html --markdown report.md
"""
GPUS_SHOWN = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("workload", help="workload ID (`marey workloads` lists them)")
    add_store(parser)
    add_span(parser)
    parser.add_argument(
        "--metric", default="", metavar="M", help="cluster the GPUs by this metric (util)"
    )
    parser.add_argument(
        "--against",
        default=None,
        metavar="ID",
        help="report changes from this workload (or, with the same ID, another window)",
    )
    parser.add_argument("--against-from", metavar="TIME", help="start of the other window")
    parser.add_argument("--against-to", metavar="TIME", help="end of the other window")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write an HTML report")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write it as Markdown")


def run(args: argparse.Namespace, out: Output) -> None:
    """Ask and print."""
    if args.against is not None:
        _compare(args, out)
        return
    question = AskDiagnosis(args.workload, args.cluster, metric=args.metric, **span_of(args))
    document = ask_place(args, question)
    for kind, path in (("html", args.html), ("markdown", args.markdown)):
        if path is not None:
            _write(args, kind, path)
    out.answer(document, _print_diagnosis(document))


def _compare(args: argparse.Namespace, out: Output) -> None:
    times = [
        None if text is None else parse_time(text) for text in (args.against_from, args.against_to)
    ]
    question = AskComparison(
        args.workload,
        args.against,
        args.cluster,
        args.metric or "util",
        **span_of(args),
        other_from_ms=times[0],
        other_to_ms=times[1],
    )
    document = ask_place(args, question)
    out.answer(document, _print_comparison(document))


def _print_comparison(document: dict[str, Any]) -> str:
    lines = []
    for word in ("before", "after"):
        side = document[word]
        window = side["window"]
        when = f"{window['from']} to {window['to']}" if window else "no samples"
        lines.append(f"{word:7} {side['workload']}, {side['gpus']} GPUs, {when}: {side['verdict']}")
    return "\n".join([*lines, "", *document["changed"]])


def _write(args: argparse.Namespace, kind: str, path: Path) -> None:
    question = AskReport(
        args.workload, args.cluster, metric=args.metric, format=kind, **span_of(args)
    )
    try:
        path.write_text(ask_place(args, question)["text"], encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            f"The report cannot be written to '{shown(path)}': {error.strerror}."
        ) from None


def _print_diagnosis(document: dict[str, Any]) -> str:
    workload = document["workload"]
    lines = [
        f"Workload {workload['id']} {workload['name']} of {workload['user'] or 'unknown'}: "
        f"{counted(len(workload['gpus']), 'GPU')} on {counted(len(workload['hosts']), 'host')}, "
        f"{workload['state']}",
        "",
    ]
    for finding in document["findings"]:
        lines += _print_finding(finding)
    if describe_unjudged(document):
        lines += [describe_unjudged(document), ""]
    if len(document["clusters"]) > 1:
        metric = document["clustering"]["metric"]
        lines.append(f"GPUs that differ in {metric}:")
        lines += [f"  {cluster['why']}" for cluster in document["clusters"]]
    return "\n".join(lines)


def _print_finding(finding: dict[str, Any]) -> list[str]:
    lines = [
        f"{finding['kind']} ({format_percent(finding['confidence'])} confidence): "
        f"{finding['summary']}"
    ]
    if not finding["fault"]:
        lines += [f"  seen in {evidence_text(entry)}" for entry in finding["evidence"]]
        return [*lines, f"  next    {finding['next']}", ""]
    places = finding["gpus"] or finding["hosts"]
    shown = " ".join(places[:GPUS_SHOWN])
    more = len(places) - GPUS_SHOWN
    lines.append(f"  where   {shown or 'not known'}{f' and {more} more' if more > 0 else ''}")
    lines.append(f"  when    {finding['window']['from']} to {finding['window']['to']}")
    lines += [f"  seen in {evidence_text(entry)}" for entry in finding["evidence"]]
    lines.append(f"  stake   {finding['gpu_hours']} GPU-hours")
    lines.append(f"  try     {finding['next']}")
    lines.append("")
    return lines
