"""Asking a store from the command line: the file itself, or the server that holds it."""

from __future__ import annotations

import os
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from marey.app.clocks import StoredClock
from marey.app.collecting import Store
from marey.app.journal import journaled, unsettled
from marey.app.questions import Question
from marey.app.split_store import samples_of_file
from marey.app.summary import SummaryLog
from marey.app.workspace import Workspace
from marey.model import errors
from marey.model.errors import MareyError, Unavailable
from marey.store.holder import Holder, holder

TOKEN_VARIABLE = "MAREY_TOKEN"
_TIMEOUT_S = 60.0


def ask(path: Path, question: Question) -> Any:
    """The answer as a JSON document, whoever gives it."""
    server = holder(path)
    if server is not None:
        return ask_server(server, question)
    # Only now: the database takes longer to import than a server takes to answer.
    from marey.store.embedded import open_store

    with open_store(path, read_only=True) as store:
        if not unsettled(store):
            return _asked(store, question)
    # The process that wrote it was killed: what it had only noted is sorted in first.
    journaled(open_store(path)).close()
    with open_store(path, read_only=True) as store:
        return _asked(store, question)


def _asked(store: Store, question: Question) -> Any:
    store = samples_of_file(store)
    return question.ask(Workspace(store, StoredClock(store, store.clusters), {}, SummaryLog(store)))


def ask_server(server: Holder, question: Question) -> Any:
    """The answer of a running server; its errors are raised as if they were ours."""
    query = urllib.parse.urlencode(question.query())
    return request_server(server, "GET", f"{question.path()}?{query}")


def request_server(server: Holder, method: str, path: str, body: Any = None) -> Any:
    """One request to a running server; its errors are raised as if they were ours."""
    headers = {"Accept": "application/json"}
    token = os.environ.get(TOKEN_VARIABLE)
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None
    if body is not None:
        data, headers["Content-Type"] = msgspec.json.encode(body), "application/json"
    request = urllib.request.Request(
        f"{server.url}/api/v1{path}", data=data, headers=headers, method=method
    )
    # The server is on this machine: a proxy from the environment must not be asked.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as got:
            return msgspec.json.decode(got.read())
    except urllib.error.HTTPError as error:
        raise _refused(error) from None
    except (OSError, msgspec.DecodeError) as error:
        raise Unavailable(
            f"The server at {server.url} (process {server.pid}) holds the store but does not "
            f"answer: {error}."
        ) from None


_FAMILY: tuple[type[MareyError], ...] = (
    errors.InvalidInput,
    errors.NotFound,
    errors.Conflict,
    errors.TooLarge,
    errors.Unavailable,
    errors.StoreError,
)


def _refused(error: urllib.error.HTTPError) -> MareyError:
    try:
        detail = str(msgspec.json.decode(error.read())["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        detail = f"The server answered {error.code} {error.reason}."
    return error_of(error.code, detail)


def error_of(status: int, detail: str) -> MareyError:
    """The error of ours that stands behind this status."""
    kind = next((kind for kind in _FAMILY if kind.status == status), Unavailable)
    return kind(detail)
