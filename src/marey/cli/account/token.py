"""``marey token``: create, list and revoke API tokens."""

from __future__ import annotations

import argparse
from typing import Any

from marey.cli.account.signed_in_server import add_server, ask
from marey.cli.output import Output
from marey.cli.store_arguments import as_table
from marey.model.times import format_time

DESCRIPTION = """\
Create, list and revoke your own API tokens, for scripts and training runs. A new token is printed
only once. A token never permits more than its owner may do."""
EXAMPLES = """\
  marey token create "nightly report" --scope read --life 30d
  marey token create "run 4711" --scope progress:write --workload 4711
  marey token list
  marey token revoke 1f0c2a9b77de
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="create a token and print it")
    create.add_argument("name", metavar="NAME", help="what it is for")
    create.add_argument(
        "--scope",
        action="append",
        metavar="SCOPE",
        help="read (default), progress:write, contribute, operate, admin or account; repeatable",
    )
    create.add_argument("--life", default="90d", metavar="TIME", help="how long it is valid (90d)")
    create.add_argument("--workload", default="", metavar="ID", help="progress of this one alone")
    listing = actions.add_parser("list", help="list your tokens")
    revoke = actions.add_parser("revoke", help="revoke a token")
    revoke.add_argument("id", metavar="ID", help="id of the token")
    for action in (create, listing, revoke):
        add_server(action)
        action.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace, out: Output) -> None:
    """Do what was asked."""
    if args.action == "create":
        body = {
            "name": args.name,
            "scopes": args.scope or ["read"],
            "life": args.life,
            "workload": args.workload,
        }
        made = ask(args, "POST", "/tokens", body)
        out.print_note(f"Valid until {format_time(made['row']['expires_ms'])}; not shown again.")
        out.answer(made, made["token"])
    elif args.action == "revoke":
        ask(args, "DELETE", f"/tokens/{args.id}")
        out.answer({"revoked": args.id}, f"Revoked {args.id}.")
    else:
        print_tokens(ask(args, "GET", "/tokens"), out)


def print_tokens(rows: list[dict[str, Any]], out: Output) -> None:
    """Print tokens without their secrets."""
    shown = [
        {
            **row,
            "scopes": ", ".join(row["scopes"]),
            "expires": format_time(row["expires_ms"]),
            "used": format_time(row["used_ms"]) if row["used_ms"] else None,
        }
        for row in rows
    ]
    out.answer(rows, as_table(shown, ("id", "name", "scopes", "workload", "expires", "used")))
