"""What the reading commands share: where the store is, how times and tables are shown."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marey.app.access.kept_sign_ins import normalise_address
from marey.cli.output import Output
from marey.model.errors import InvalidInput
from marey.model.names import DEFAULT_CLUSTER
from marey.model.times import format_time, parse_time
from marey.store.holder import StoreHolder

# Whoever asks imports the way to a store or server, not whoever only declares options.
if TYPE_CHECKING:
    from marey.app.queries.server_client import Place
    from marey.app.queries.table_queries import Question

DEFAULT_STORE = "marey.duckdb"
SERVER_VARIABLE = "MAREY_SERVER"

# Keys that hold a moment (not a duration): shown without `_ms`, as ISO-8601 UTC.
_MOMENTS = frozenset(
    {
        "time_ms",
        "submit_ms",
        "eligible_ms",
        "start_ms",
        "end_ms",
        "valid_from_ms",
        "valid_to_ms",
        "first_ms",
        "last_ms",
    }
)


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the options that every reading command has."""
    given = os.environ.get(SERVER_VARIABLE, "")
    parser.add_argument(
        "--server",
        dest="store",
        type=read_server,
        default=given or argparse.SUPPRESS,
        metavar="URL",
        help=f"query this server, signed in with `marey login` (${SERVER_VARIABLE})",
    )
    parser.add_argument(
        "--store",
        type=Path,
        default=argparse.SUPPRESS if given else Path(DEFAULT_STORE),
        metavar="FILE",
        help=f"the store ({DEFAULT_STORE}); a running server that holds it answers",
    )
    parser.add_argument("--cluster", default=DEFAULT_CLUSTER, help="the cluster (default)")


def read_server(text: str) -> StoreHolder:
    """Return the server of an address; an open one is refused."""
    try:
        return StoreHolder(normalise_address(text), 0)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def is_there(place: Place) -> bool:
    """Return whether there is somebody or something to ask."""
    return isinstance(place, StoreHolder) or place.exists()


def tell_asker(place: Place, out: Output) -> None:
    """Say as whom a server is asked: what it shows depends on it."""
    from marey.app.queries.server_client import request_server

    if isinstance(place, StoreHolder):
        me = request_server(place, "GET", "/me")
        who = f"{me['user']} ({me['role']})" if me["user"] else "nobody in particular"
        out.print_note(f"Asking {place.url} as {who}.")


def ask_place(args: argparse.Namespace, question: Question[Any]) -> Any:
    """Return the answer of the store or server that is meant."""
    from marey.app.queries.server_client import ask

    tell_asker(args.store, Output(json=args.json))
    return ask(args.store, question)


def add_span(parser: argparse.ArgumentParser) -> None:
    """Add the options for a span of time."""
    parser.add_argument("--from", dest="from_time", metavar="TIME", help="start, ISO 8601 UTC")
    parser.add_argument("--to", dest="to_time", metavar="TIME", help="end (exclusive)")


def add_samples(parser: argparse.ArgumentParser) -> None:
    """Add the options for samples: a workload's or named GPUs', which metrics, when."""
    parser.add_argument("--workload", default="", metavar="ID", help="this workload's GPUs")
    parser.add_argument("--gpus", default="", metavar="HOST:I,…", help="these GPUs")
    parser.add_argument("--metrics", default="util", metavar="M,…", help="metric IDs (util)")
    add_span(parser)


def span_of(args: argparse.Namespace) -> dict[str, int | None]:
    """Return the span as a question takes it."""
    return {
        "from_ms": None if args.from_time is None else parse_time(args.from_time),
        "to_ms": None if args.to_time is None else parse_time(args.to_time),
    }


def samples_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the samples as a question takes them."""
    return {
        "cluster": args.cluster,
        "workload": args.workload,
        "gpus": args.gpus,
        "metrics": args.metrics,
        **span_of(args),
    }


def answer_of(args: argparse.Namespace, question: Question[Any]) -> Any:
    """Return the answer, with times as people read them."""
    return with_times(ask_place(args, question))


def with_times(document: Any) -> Any:
    """Return the document with every moment as ISO-8601 UTC, under its name without ``_ms``."""
    if isinstance(document, list):
        return [with_times(item) for item in document]
    if not isinstance(document, dict):
        return document
    shown: dict[str, Any] = {}
    for key, value in document.items():
        if key in _MOMENTS:
            shown[key.removesuffix("_ms")] = None if value is None else format_time(value)
        else:
            shown[key] = with_times(value)
    return shown


_CELL_WIDTH = 40


def as_table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    """Return rows as aligned text; long cells are cut."""
    if not rows:
        return "Nothing found."
    cells = [[_print_cell(row.get(name)) for name in columns] for row in rows]
    widths = [max(len(name), *(len(line[at]) for line in cells)) for at, name in enumerate(columns)]
    lines = [list(columns), *cells]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _print_cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "".join(c if c.isprintable() else "�" for c in str(value)[: _CELL_WIDTH + 1])
    return text if len(text) <= _CELL_WIDTH else f"{text[: _CELL_WIDTH - 1]}…"
