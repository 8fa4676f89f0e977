"""``marey whoami``: as whom this user's commands ask a server."""

from __future__ import annotations

import argparse

from marey.app.queries.server_client import request_server
from marey.cli.account.signed_in_server import add_server, find_server
from marey.cli.output import Output
from marey.model.times import format_time

DESCRIPTION = "Show which user and permissions commands have on a server."
EXAMPLES = """\
  marey whoami
  marey whoami --server https://marey.example.org --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_server(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Print it."""
    server = find_server(args)
    me = request_server(server, "GET", "/me")
    document = {"server": server.url, **me}
    lines = [
        f"{me['user'] or 'nobody in particular'} ({me['role'] or 'not signed in'}) at {server.url}",
        f"may: {', '.join(me['permissions']) or 'nothing'}",
    ]
    lines += [f"projects: {', '.join(me['projects'])}"] if me["projects"] else []
    lines += [f"until: {format_time(me['ends_ms'])}"] if me["ends_ms"] else []
    out.answer(document, "\n".join(lines))
