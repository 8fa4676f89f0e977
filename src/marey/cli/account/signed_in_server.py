"""Which server a command about accounts speaks to, and as whom."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from marey.app.access.kept_sign_ins import normalise_address, read_sign_ins
from marey.app.queries.server_client import request_server
from marey.cli.store_arguments import DEFAULT_STORE, SERVER_VARIABLE
from marey.model.errors import InvalidInput
from marey.store.holder import StoreHolder, find_holder


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which server is meant."""
    parser.add_argument(
        "--server",
        default=os.environ.get(SERVER_VARIABLE, ""),
        metavar="URL",
        help=f"the server (${SERVER_VARIABLE}; else the store's, else the last login)",
    )
    parser.add_argument(
        "--store",
        type=Path,
        default=Path(DEFAULT_STORE),
        metavar="FILE",
        help=f"or the store that a server on this machine holds ({DEFAULT_STORE})",
    )


def find_server(args: argparse.Namespace) -> StoreHolder:
    """Return the server that is meant."""
    if args.server:
        return StoreHolder(normalise_address(args.server), 0)
    held = find_holder(args.store)
    if held is not None:
        return held
    last = read_sign_ins().last
    if not last:
        raise InvalidInput(
            f"No server is running over '{args.store}', and you are not signed in; "
            "give --server URL."
        )
    return StoreHolder(last, 0)


def ask(args: argparse.Namespace, method: str, path: str, body: Any = None) -> Any:
    """Return the server's answer."""
    return request_server(find_server(args), method, path, body)
