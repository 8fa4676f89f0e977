"""Asking from the command line: a store's file, the server that holds it, or a named server."""

from __future__ import annotations

import io
import ipaddress
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
import urllib3

from marey.app.access.kept_sign_ins import read_sign_ins
from marey.app.access.owner_key import find_owner_key
from marey.app.collect.clocks import StoredClock
from marey.app.collect.sample_store import wrap_records_alone
from marey.app.queries.table_queries import Question
from marey.app.queries.workspace import Workspace
from marey.live.summary import SummaryLog
from marey.model import errors
from marey.model.errors import MareyError, Unavailable
from marey.model.protocols import Store
from marey.store.holder import StoreHolder, find_holder
from marey.store.journal.journaled_store import add_journal, has_unapplied_journal

TOKEN_VARIABLE = "MAREY_TOKEN"
_TIMEOUT_S = 60.0
# Where a question goes: a store's file, or a server.
Place = Path | StoreHolder


def find_place_server(place: Place) -> StoreHolder | None:
    """Return the server to be asked: the one that is meant, or that holds the store."""
    return place if isinstance(place, StoreHolder) else find_holder(place)


def ask(place: Place, question: Question[Any]) -> Any:
    """Return the answer as a JSON document, whoever gives it."""
    if isinstance(place, StoreHolder):
        return ask_server(place, question)
    return _ask_path(place, question)


def _ask_path(path: Path, question: Question[Any]) -> Any:
    server = find_holder(path)
    if server is not None:
        return ask_server(server, question)
    # Only now: the database takes longer to import than a server takes to answer.
    from marey.store.embedded.embedded_store import open_store

    with open_store(path, read_only=True) as store:
        if not has_unapplied_journal(store):
            return _ask_store(store, question)
    # The process that wrote it was killed: what it had only noted is sorted in first.
    add_journal(open_store(path)).close()
    with open_store(path, read_only=True) as store:
        return _ask_store(store, question)


def _ask_store(store: Store, question: Question[Any]) -> Any:
    store = wrap_records_alone(store)
    workspace = Workspace(store, StoredClock(store, store.clusters), {}, SummaryLog(store))
    # As a server would have sent it: whoever prints it need not know who answered.
    return msgspec.to_builtins(question.ask(workspace), str_keys=True)


def ask_server(server: StoreHolder, question: Question[Any]) -> Any:
    """Return the answer of a running server; its errors are raised as if they were ours."""
    query = urlencode(question.query())
    return request_server(server, "GET", f"{question.path()}?{query}")


def request_server(
    server: StoreHolder, method: str, path: str, body: Any = None, *, token: str | None = None
) -> Any:
    """Send a request to a running server; its errors are raised as if they were ours.

    A file that is open for reading is sent as it is, anything else as JSON. Redirects are not
    followed, and a proxy of the environment is not asked: the server is on this machine, or one
    at which this user has signed in. A ``token`` that is given is shown instead of what is kept.
    """
    headers = {"Accept": "application/json"}
    if token is None:
        token = find_token(server)
    # An address that was found beside a store may lead elsewhere; one that was typed is meant.
    if token and (is_on_this_machine(server.url) or not server.pid):
        headers["Authorization"] = f"Bearer {token}"
    if isinstance(body, io.IOBase):
        headers["Content-Length"] = str(os.fstat(body.fileno()).st_size)
    elif body is not None:
        body, headers["Content-Type"] = msgspec.json.encode(body), "application/json"
    url = f"{server.url}/api/v1{path}"
    try:
        with open_pool(server) as pool:
            answer = pool.request(
                method, url, body=body, headers=headers, timeout=_TIMEOUT_S, retries=False
            )
        document = msgspec.json.decode(answer.data) if answer.data else None
    except (urllib3.exceptions.HTTPError, OSError, msgspec.DecodeError) as error:
        who = f" (process {server.pid}) holds the store but" if server.pid else ""
        raise Unavailable(f"The server at {server.url}{who} does not answer: {error}.") from None
    if answer.status >= 300:
        raise _read_error(answer.status, answer.reason or "", document)
    return document


def find_token(server: StoreHolder) -> str:
    """Return the token that this user sends to a server.

    A token of the environment, or the owner's key: to this machine alone. Then the token with
    which the user has signed in at this very address.
    """
    if is_on_this_machine(server.url):
        given = os.environ.get(TOKEN_VARIABLE, "").strip()
        found = given or (find_owner_key(server.store) if server.store else "")
        if found:
            return found
    return read_sign_ins().tokens.get(server.url, "")


def open_pool(server: StoreHolder) -> urllib3.PoolManager:
    """Return connections to a server; its certificate must be the one that it wrote down."""
    if not server.certificate:
        return urllib3.PoolManager()
    # Its name is the site's, not loopback's: the fingerprint says more than a name.
    return urllib3.PoolManager(
        assert_fingerprint=server.certificate, cert_reqs="CERT_NONE", assert_hostname=False
    )


def is_on_this_machine(url: str) -> bool:
    """Return whether an address is one of this machine: a token is sent nowhere else."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if address.is_loopback:
        return True
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    # Only an address of this machine can be bound; what is sent to it never leaves it.
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


_FAMILY: tuple[type[MareyError], ...] = (
    errors.InvalidInput,
    errors.NotFound,
    errors.Conflict,
    errors.TooLarge,
    errors.Unavailable,
    errors.NotSignedIn,
    errors.NotPermitted,
    errors.StoreError,
)


def _read_error(status: int, reason: str, document: Any) -> MareyError:
    """Return the error that a problem document describes."""
    if not isinstance(document, dict) or "detail" not in document:
        return make_error(status, f"The server answered {status} {reason}.")
    return make_error(status, str(document["detail"]), str(document.get("code", "")))


def make_error(status: int, detail: str, code: str = "") -> MareyError:
    """Return the error of ours that stands behind this status."""
    kind = next((kind for kind in _FAMILY if kind.status == status), Unavailable)
    return kind(detail, code=code)
