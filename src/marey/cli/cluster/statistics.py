"""``marey stats``: exact statistics of samples."""

from __future__ import annotations

import argparse

from marey.app.queries.table_queries import AskStatistics
from marey.cli.output import Output
from marey.cli.store_arguments import add_samples, add_store, answer_of, as_table, samples_of

DESCRIPTION = (
    "Print count, minimum, maximum, mean, standard deviation and quantiles per GPU and metric."
)
EXAMPLES = """\
  marey stats --workload 4711 --metrics util,power_share
  marey stats --gpus node1:0 --quantiles 0.01,0.5,0.99 --json
"""
_COLUMNS = ("entity", "metric", "count", "min", "max", "mean", "std", "last", "quantiles")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    add_samples(parser)
    parser.add_argument("--quantiles", default="0.05,0.5,0.95", help="quantiles (0.05,0.5,0.95)")


def run(args: argparse.Namespace, out: Output) -> None:
    """Print them."""
    document = answer_of(args, AskStatistics(**samples_of(args), quantiles=args.quantiles))
    out.answer(document, as_table(document["rows"], _COLUMNS))
    if document["approximate"]:
        out.print_note("Approximate: made from hourly sketches.")
