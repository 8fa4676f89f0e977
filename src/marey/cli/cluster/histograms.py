"""``marey histograms``: how values are spread, per GPU and metric."""

from __future__ import annotations

import argparse

from marey.app.queries.table_queries import AskHistograms
from marey.cli.output import Output
from marey.cli.store_arguments import add_samples, add_store, answer_of, as_table, samples_of

DESCRIPTION = "Print histograms per GPU and metric over equal bins of the metric's range."
EXAMPLES = """\
  marey histograms --workload 4711 --metrics util --bins 10
"""
_COLUMNS = ("entity", "metric", "low", "high", "missing", "counts")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    add_samples(parser)
    parser.add_argument("--bins", type=int, default=32, help="number of bins (32)")


def run(args: argparse.Namespace, out: Output) -> None:
    """Print them."""
    document = answer_of(args, AskHistograms(**samples_of(args), bins=args.bins))
    out.answer(document, as_table(document["rows"], _COLUMNS))
