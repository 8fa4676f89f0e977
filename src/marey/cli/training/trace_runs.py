"""``marey trace runs`` and ``marey trace table``: the runs that a server has, as its pages show
them.
"""

from __future__ import annotations

import argparse
from typing import Any
from urllib.parse import quote, urlencode

from marey.cli.output import Output
from marey.cli.store_arguments import add_store, as_table
from marey.model.errors import Unavailable
from marey.model.names import DEFAULT_CLUSTER
from marey.store.holder import StoreHolder

# The tables of a run's page, by the names of their routes.
TABLES = (
    "verdicts",
    "steps",
    "breakdown",
    "collectives",
    "waits",
    "communication",
    "communication/nodes",
    "memory",
    "kernels",
    "operators",
    "critical-path",
)
_RUN_COLUMNS = ("id", "name", "workload", "state", "ranks", "steps", "verdict")
_VERDICT_COLUMNS = ("title", "sentence", "confidence", "where")
_PAGE = 1000


def add_runs_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how runs are listed."""
    add_store(parser)
    parser.add_argument("--workload", default="", metavar="ID", help="only runs of this workload")


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how a table of a run is read."""
    add_store(parser)
    parser.add_argument("run_id", metavar="RUN", help="its ID, as `marey trace runs` lists it")
    parser.add_argument("table", metavar="TABLE", choices=TABLES, help=", ".join(TABLES))
    parser.add_argument(
        "--where",
        default="",
        metavar="SELECTION",
        help='only these, such as "rank=3,7-9 and step=5" (docs/traces-api.md)',
    )
    parser.add_argument("--sort", default="", metavar="COLUMN", help="-COLUMN: the largest first")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="maximum rows (20)")


def list_runs(args: argparse.Namespace, out: Output) -> None:
    """Print the runs of a server, newest first."""
    rows: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        # All clusters, unless one is named.
        cluster = "" if args.cluster == DEFAULT_CLUSTER else args.cluster
        question = {"workload": args.workload, "cluster": cluster, "limit": _PAGE}
        question["cursor"] = cursor
        page = _request(args, "/traces", question)
        rows += page["runs"]
        cursor = page["next"]
    out.answer({"runs": rows}, as_table(rows, _RUN_COLUMNS))


def print_table(args: argparse.Namespace, out: Output) -> None:
    """Print one table of a run: the same rows as its page and the API give."""
    path = f"/traces/{quote(args.run_id, safe='')}/{args.table}"
    if args.table == "verdicts":
        document = _request(args, path, {})
        out.answer(document, as_table(document["verdicts"], _VERDICT_COLUMNS))
        return
    question = {"where": args.where, "sort": args.sort, "limit": args.limit}
    document = _request(args, path, question)
    rows = document["rows"]
    out.answer(document, as_table(rows, list(rows[0]) if rows else ()))
    if document["total"] > len(rows) and not out.json:
        out.print_note(f"{len(rows)} of {document['total']:,} rows; --limit shows more.")


def _request(args: argparse.Namespace, path: str, question: dict[str, Any]) -> Any:
    from marey.app.queries.server_client import request_server

    given = {key: value for key, value in question.items() if value != ""}
    return request_server(_find_server(args), "GET", f"{path}?{urlencode(given)}")


def _find_server(args: argparse.Namespace) -> StoreHolder:
    from marey.app.queries.server_client import find_place_server

    server = find_place_server(args.store)
    if server is None:
        raise Unavailable(
            f"No server holds {args.store}, and only a server has runs: start `marey serve`, name "
            "one with --server, or read the files themselves with `marey trace report PATH`."
        )
    return server
