"""``marey findings``: findings of the rules, and the GPU-hours they cost."""

from __future__ import annotations

import argparse
from typing import Any

from marey.app.rules.finding_store import AskFindings, AskWaste
from marey.cli.output import Output
from marey.cli.store_arguments import add_span, add_store, as_table, ask_place, span_of
from marey.model.times import format_time

DESCRIPTION = "List findings, open ones first, or sum up the GPU-hours they cost."
EXAMPLES = """\
  marey findings --state open --store site.duckdb
  marey findings --workload 410023 --json
  marey findings --waste project --from 2026-11-01 --to 2026-12-01
  marey findings --waste user --csv > wasted.csv
"""
_COLUMNS = (
    "id",
    "rule",
    "severity",
    "workload",
    "user",
    "opened",
    "closed",
    "gpu_count",
    "gpu_hours",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    parser.add_argument(
        "--state",
        default="",
        choices=["", "open", "closed"],
        metavar="STATE",
        help="open or closed (default: both)",
    )
    for name in ("workload", "rule", "user", "project"):
        parser.add_argument(f"--{name}", default="", help=f"only of this {name}")
    parser.add_argument("--limit", type=int, default=1000, help="maximum rows (1000)")
    parser.add_argument(
        "--waste", default="", metavar="BY", help="GPU-hours by user, project, partition or rule"
    )
    parser.add_argument("--csv", action="store_true", help="the sums as CSV")
    add_span(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Print them."""
    if args.waste:
        _print_waste(args, out)
        return
    question = AskFindings(
        cluster=args.cluster,
        state=args.state,
        workload=args.workload,
        rule=args.rule,
        user=args.user,
        project=args.project,
        limit=args.limit,
    )
    document = ask_place(args, question)
    document["rows"] = [_print_findings(row) for row in document["rows"]]
    out.answer(document, as_table(document["rows"], _COLUMNS))
    if document["preparing"]:
        out.print_note(_tell_preparing(document["share_read"]))
    elif not document["rows"] and not out.json:
        out.print_note(
            "Findings come from a running server; "
            "`marey rules backtest` evaluates rules on stored history."
        )


def _print_findings(row: dict[str, Any]) -> dict[str, Any]:
    moments = ("opened_ms", "closed_ms", "updated_ms")
    shown = {key: value for key, value in row.items() if key not in moments}
    for key in moments:
        value = row.get(key)
        shown[key.removesuffix("_ms")] = None if value is None else format_time(value)
    return shown


def _print_waste(args: argparse.Namespace, out: Output) -> None:
    document = ask_place(args, AskWaste(args.waste, args.cluster, **span_of(args)))
    text = (
        document["csv"]
        if args.csv
        else as_table(document["rows"], ("name", "gpu_hours", "findings", "workloads"))
    )
    out.answer(document, text)
    if document["preparing"]:
        out.print_note(_tell_preparing(document["share_read"]))


def _tell_preparing(share_read: float | None) -> str:
    """Say that more findings may follow, and how far the rules are."""
    percent = "" if share_read is None else f" {100 * share_read:.0f} %"
    return f"Evaluating rules on past data…{percent} More findings may follow."
