"""``marey mcp``: the questions of Marey as tools for assistants."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

from marey.cli.output import Output
from marey.cli.store_arguments import DEFAULT_STORE
from marey.model.errors import NotFound, Unavailable
from marey.store.holder import find_holder

DESCRIPTION = """\
Answer an AI assistant's questions over the Model Context Protocol: what is running, why jobs
wait, what is wrong, what a trace shows, what would help. Read-only; the token's permissions and
the site's privacy settings apply. Needs the extra marey[mcp] and a running server."""
EXAMPLES = """\
  marey mcp --store site.duckdb                  over stdio, as an assistant starts it
  MAREY_TOKEN=… marey mcp --store site.duckdb    with this token's permissions
  marey mcp --store site.duckdb --http 8601      on loopback; each caller sends its own token
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--store",
        type=Path,
        default=Path(DEFAULT_STORE),
        metavar="FILE",
        help=f"the store ({DEFAULT_STORE}) whose server answers",
    )
    parser.add_argument(
        "--http", type=int, metavar="PORT", help="serve over HTTP on this loopback port, at /mcp"
    )


def run(args: argparse.Namespace, out: Output) -> None:
    """Answer until the assistant goes."""
    try:
        import anyio

        from marey.assistants.assistant_server import make_assistant_server
    except ImportError as error:
        raise NotFound(f"{error}; install it with: pip install 'marey[mcp]'.") from None
    find_server = functools.partial(find_holder, args.store)
    if find_server() is None:
        raise Unavailable(f"No server holds the store '{args.store}'; start `marey serve` first.")
    server = make_assistant_server(find_server, own_token=args.http is None)
    if args.http is None:
        anyio.run(server.run_stdio_async)
        return
    out.print_note(f"Answering at http://127.0.0.1:{args.http}/mcp; end with Ctrl-C.")
    serve = functools.partial(
        server.run_streamable_http_async, port=args.http, stateless_http=True, json_response=True
    )
    anyio.run(serve)
