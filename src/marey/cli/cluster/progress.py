"""``marey progress``: what a workload said of itself."""

from __future__ import annotations

import argparse

from marey.app.queries.table_queries import AskProgress
from marey.cli.output import Output
from marey.cli.store_arguments import add_span, add_store, answer_of, as_table, span_of

DESCRIPTION = "Print the step, throughput and loss reported by a training script."
EXAMPLES = """\
  marey progress 4711 --store site.duckdb
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("workload", metavar="ID", help="workload ID")
    add_store(parser)
    add_span(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Print it."""
    question = AskProgress(workload=args.workload, cluster=args.cluster, **span_of(args))
    document = answer_of(args, question)
    out.answer(document, as_table(document["rows"], ("time", "step", "throughput", "unit", "loss")))
