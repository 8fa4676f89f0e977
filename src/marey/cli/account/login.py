"""``marey login``: sign in at a server, so that commands know who asks."""

from __future__ import annotations

import argparse
import getpass
import platform
import sys
import time
from dataclasses import replace
from typing import Any

from marey.app.access.kept_sign_ins import (
    get_sign_ins_path,
    normalise_address,
    read_sign_ins,
    write_sign_ins,
)
from marey.app.queries.server_client import request_server
from marey.cli.account.signed_in_server import add_server, find_server
from marey.cli.output import Output
from marey.model.errors import InvalidInput, NotSignedIn
from marey.store.holder import StoreHolder

DESCRIPTION = """\
Sign in to a Marey server. The command shows a code; enter it on the account page of the web app,
where you are signed in, and the command receives a 30-day token that you can revoke there. Or
pass a token created on that page on standard input. It is stored in a file that only you can
read; you are never asked for a password."""
EXAMPLES = """\
  marey login --server https://marey.example.org
  marey login --server https://marey.example.org --with-token < token.txt
"""
POLL_S = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_server(parser)
    parser.add_argument(
        "--with-token", action="store_true", help="read an API token from standard input"
    )


def run(args: argparse.Namespace, out: Output) -> None:
    """Sign in, and say as whom."""
    server = replace(find_server(args), store=None)
    server = replace(server, url=normalise_address(server.url))
    token = read_token() if args.with_token else wait_for_token(server, out)
    me = request_server(server, "GET", "/me", token=token)
    kept = read_sign_ins()
    kept.tokens[server.url], kept.last = token, server.url
    path = write_sign_ins(kept)
    document = {"server": server.url, "user": me["user"], "role": me["role"], "file": str(path)}
    out.answer(document, f"Signed in to {server.url} as {me['user']} ({me['role']}).")


def read_token() -> str:
    """Return the token on standard input; typed, it is not shown."""
    text = getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline(4096)
    if not text.strip():
        raise InvalidInput("No token on standard input.")
    return text.strip()


def wait_for_token(server: StoreHolder, out: Output) -> str:
    """Show a code, and wait until its user has typed it on the account page."""
    place = f"{getpass.getuser()} at {platform.node()}"
    begun: dict[str, Any] = request_server(
        server, "POST", "/sign-in/commands", {"place": place}, token=""
    )
    page = begun["page"] if begun["page"].startswith("http") else f"{server.url}/account"
    out.print_note(f"Open {page}, sign in, and type this code: {begun['code']}")
    claim = {"code": begun["code"], "command_secret": begun["command_secret"]}
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        answer = request_server(server, "POST", "/sign-in/commands/token", claim, token="")
        if answer["token"]:
            return str(answer["token"])
        time.sleep(POLL_S)
    raise NotSignedIn(f"The code was not entered within ten minutes; see {get_sign_ins_path()}.")
