"""``marey series``: metrics over time, downsampled so that extremes stay."""

from __future__ import annotations

import argparse

from marey.app.queries.table_queries import AskSeries
from marey.cli.output import Output
from marey.cli.store_arguments import add_samples, add_store, answer_of, as_table, samples_of

DESCRIPTION = "Print metrics over time for a workload's GPUs, or for given GPUs."
EXAMPLES = """\
  marey series --workload 4711 --metrics util,power --points 200
  marey series --gpus node1:0,node1:1 --from 2026-11-15T08:00:00Z --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    add_samples(parser)
    parser.add_argument("--points", type=int, default=1000, help="maximum points per series (1000)")


def run(args: argparse.Namespace, out: Output) -> None:
    """Print them."""
    document = answer_of(args, AskSeries(**samples_of(args), points=args.points))
    out.answer(document, as_table(document["rows"], ("entity", "metric", "time", "value")))
    if document["approximate"]:
        out.print_note("Approximate: made from hourly sketches.")
