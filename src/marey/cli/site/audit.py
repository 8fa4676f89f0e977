"""``marey audit``: log of changes, sign-ins and refusals."""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from marey.app.audit.audit_documents import AuditEntry, AuditKind
from marey.app.audit.audit_export import write_csv, write_lines
from marey.app.audit.audit_log import AuditFilter
from marey.app.audit.audit_reading import read_record
from marey.cli.output import Output
from marey.cli.store_arguments import DEFAULT_STORE, add_span, as_table, span_of, with_times
from marey.model.times import parse_duration

DESCRIPTION = "Print the record of changes, sign-ins and refusals, newest first."
EXAMPLES = """\
  marey audit --store site.duckdb --since 7d
  marey audit --kind refusal --user ada
  marey audit --csv > audit.csv
"""
_COLUMNS = ("time", "kind", "user", "role", "peer", "route", "object", "status", "times")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--store",
        type=Path,
        default=Path(DEFAULT_STORE),
        metavar="FILE",
        help=f"the store ({DEFAULT_STORE}); a running server that holds it answers",
    )
    parser.add_argument("--kind", default="", choices=list(AuditKind), help="only this kind")
    parser.add_argument("--user", default="", metavar="NAME", help="only by this user")
    parser.add_argument(
        "--text",
        default="",
        metavar="TEXT",
        help="only entries whose route, object or peer contains this",
    )
    parser.add_argument("--limit", type=int, default=100, help="maximum rows (100)")
    parser.add_argument("--since", metavar="DURATION", help="how far back, such as 7d")
    add_span(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="all matching entries, as CSV")
    form.add_argument("--jsonl", action="store_true", help="all matching entries, as JSON lines")


def run(args: argparse.Namespace, out: Output) -> None:
    """Print them."""
    entries = read_record(args.store, _read_filter(args))
    if args.csv or args.jsonl:
        write = write_csv if args.csv else write_lines
        out.pass_on(line.decode() for line in write(entries))
        return
    rows = _make_rows(itertools.islice(entries, max(0, args.limit)))
    out.answer({"rows": rows}, as_table(rows, _COLUMNS))


def _read_filter(args: argparse.Namespace) -> AuditFilter:
    span = span_of(args)
    if args.since is not None:
        span["from_ms"] = time.time_ns() // 1_000_000 - parse_duration(args.since)
    return AuditFilter(args.kind, args.user, args.text, span["from_ms"], span["to_ms"])


def _make_rows(entries: Iterable[AuditEntry]) -> list[dict[str, Any]]:
    return [with_times(msgspec.to_builtins(entry)) for entry in entries]
