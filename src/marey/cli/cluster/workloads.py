"""``marey workloads``: who waits, runs or ran."""

from __future__ import annotations

import argparse

from marey.app.queries.table_queries import AskWorkloads
from marey.cli.output import Output
from marey.cli.store_arguments import add_span, add_store, answer_of, as_table, span_of

DESCRIPTION = "List workloads, newest submission first."
EXAMPLES = """\
  marey workloads --state running --store site.duckdb
  marey workloads --where '{"field": "user", "op": "eq", "value": "ada"}' --json
"""
_COLUMNS = ("workload", "name", "user", "partition", "state", "reason", "gpus_requested", "submit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    parser.add_argument(
        "--state", default="", help="states, comma-separated: pending, running, ended, …"
    )
    parser.add_argument("--where", default="", metavar="JSON", help="filter, as JSON")
    parser.add_argument("--limit", type=int, default=100, help="maximum rows (100)")
    parser.add_argument(
        "--after",
        default="",
        metavar="ID",
        help="continue after this ID (`next` of the previous page)",
    )
    add_span(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Print them."""
    question = AskWorkloads(
        cluster=args.cluster,
        states=args.state,
        where=args.where,
        limit=args.limit,
        cursor=args.after,
        **span_of(args),
    )
    document = answer_of(args, question)
    out.answer(document, as_table(document["rows"], _COLUMNS))
    if document["next"] and not out.json:
        out.print_note(f"There may be more: --after {document['next']}")
