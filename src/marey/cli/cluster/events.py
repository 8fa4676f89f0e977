"""``marey events``: events: driver errors, node failures, policy changes."""

from __future__ import annotations

import argparse

from marey.app.queries.selection import split_names
from marey.app.queries.table_queries import AskEvents
from marey.cli.output import Output
from marey.cli.store_arguments import add_span, add_store, answer_of, as_table, span_of
from marey.model.events import ClusterEventKind

DESCRIPTION = "Print events: driver errors, nodes down or drained, throttling, policy changes."
EXAMPLES = """\
  marey events --store site.duckdb
  marey events --workload 4711 --json
"""
_COLUMNS = ("time", "kind", "host", "gpu", "workload", "value", "text")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    parser.add_argument("--workload", default="", metavar="ID", help="only this workload")
    parser.add_argument(
        "--kinds", default="", metavar="KIND,…", help="only these kinds, such as xid,node_down"
    )
    parser.add_argument("--limit", type=int, default=1000, help="maximum rows (1000)")
    add_span(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Print them."""
    question = AskEvents(
        cluster=args.cluster,
        workload=args.workload,
        limit=args.limit,
        kinds=split_names(args.kinds, "kinds", len(ClusterEventKind)),
        **span_of(args),
    )
    document = answer_of(args, question)
    out.answer(document, as_table(document["rows"], _COLUMNS))
