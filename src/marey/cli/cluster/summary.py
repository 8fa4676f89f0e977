"""``marey summary``: the cluster in a few numbers over time."""

from __future__ import annotations

import argparse

from marey.app.queries.table_queries import AskSummary
from marey.cli.output import Output
from marey.cli.store_arguments import add_span, add_store, answer_of, as_table, span_of

DESCRIPTION = "Print GPUs by state, waiting jobs and mean utilization over time."
EXAMPLES = """\
  marey summary --points 24 --store site.duckdb
"""
_COLUMNS = (
    "time",
    "gpus",
    "allocated",
    "idle",
    "broken",
    "running",
    "waiting",
    "waiting_gpus",
    "util",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    parser.add_argument("--points", type=int, default=48, help="maximum rows (48)")
    add_span(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Print it."""
    question = AskSummary(cluster=args.cluster, points=args.points, **span_of(args))
    document = answer_of(args, question)
    out.answer(document, as_table(document["rows"], _COLUMNS))
