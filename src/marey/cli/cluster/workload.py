"""``marey workload ID``: everything known of one workload."""

from __future__ import annotations

import argparse

from marey.app.queries.table_queries import AskWorkload
from marey.cli.output import Output
from marey.cli.store_arguments import add_store, answer_of

DESCRIPTION = "Show one workload, with its states and GPUs over time."
EXAMPLES = """\
  marey workload 4711 --store site.duckdb
  marey workload 4711 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("workload", metavar="ID", help="workload ID")
    add_store(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Print it."""
    document = answer_of(args, AskWorkload(args.workload, args.cluster))
    lines = []
    for key, value in document.items():
        if isinstance(value, list):
            lines.append(f"{key}: {len(value)} intervals")
        elif value not in (None, "", {}):
            lines.append(f"{key}: {value}")
    out.answer(document, "\n".join(lines))
