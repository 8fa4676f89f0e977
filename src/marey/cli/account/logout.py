"""``marey logout``: revoke and forget the token of a server."""

from __future__ import annotations

import argparse

from marey.app.access.kept_sign_ins import normalise_address, read_sign_ins, write_sign_ins
from marey.app.queries.server_client import request_server
from marey.cli.account.signed_in_server import add_server, find_server
from marey.cli.output import Output
from marey.model.errors import MareyError, NotFound
from marey.store.holder import StoreHolder

DESCRIPTION = "Sign out of a server: revoke the token of `marey login` there and delete it here."
EXAMPLES = """\
  marey logout
  marey logout --server https://marey.example.org
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_server(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Forget the token, whatever the server says."""
    server = StoreHolder(normalise_address(find_server(args).url), 0)
    kept = read_sign_ins()
    token = kept.tokens.pop(server.url, "")
    if not token:
        raise NotFound(f"Not signed in to {server.url}.")
    try:
        # marey_ID_SECRET
        request_server(server, "DELETE", f"/tokens/{token.split('_')[1]}", token=token)
        revoked = True
    except (MareyError, IndexError) as error:
        out.print_note(f"marey: the token could not be revoked at the server: {error}")
        revoked = False
    if kept.last == server.url:
        kept.last = next(iter(kept.tokens), "")
    write_sign_ins(kept)
    document = {"server": server.url, "revoked": revoked}
    out.answer(document, f"Signed out of {server.url}.")
