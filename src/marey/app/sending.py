"""An import into a store that a running server holds: send the files, wait for its word."""

from __future__ import annotations

import http.client
import os
import time
import urllib.parse
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from marey.app.asking import TOKEN_VARIABLE, error_of
from marey.app.importing import ImportRequest
from marey.model.errors import InvalidInput, Unavailable
from marey.store.holder import Holder

_TIMEOUT_S = 60.0
_POLL_S = 0.2


def send_import(
    server: Holder, request: ImportRequest, progress: Callable[[float], None]
) -> dict[str, Any]:
    """Let the server that holds the store import these files; its summary."""
    peer = _Peer(server)
    owner = f"import:{uuid.uuid4()}"
    wish: dict[str, Any] = {"owner": owner, "skip_bad_rows": request.skip_bad_rows}
    for part, path in (("samples", request.samples), ("workloads", request.workloads)):
        if path is not None:
            wish[part] = path.name
            peer.send_file(
                f"/uploads?{urllib.parse.urlencode({'owner': owner, 'file': path.name})}", path
            )
    cluster = urllib.parse.urlencode({"cluster": request.cluster})
    task = peer.ask("POST", f"/imports?{cluster}", msgspec.json.encode(wish))
    while task["state"] in ("waiting", "running"):
        time.sleep(_POLL_S)
        task = peer.ask("GET", f"/tasks/{task['id']}")
        progress(task["done"] / task["total"])
    if task["state"] != "done":
        raise InvalidInput(task["error"] or "The import was cancelled.")
    result: dict[str, Any] = task["result"]
    return result


class _Peer:
    """A server on this machine."""

    def __init__(self, server: Holder) -> None:
        self._server = server
        parts = urllib.parse.urlsplit(server.url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port

    def send_file(self, path: str, file: Path) -> None:
        if not file.is_file():
            raise InvalidInput(f"'{file}' is not a file.")
        with file.open("rb") as body:
            self.ask("PUT", path, body, {"Content-Length": str(file.stat().st_size)})

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        sent = {"Accept": "application/json", **(headers or {})}
        if isinstance(body, bytes):
            sent["Content-Type"] = "application/json"
        token = os.environ.get(TOKEN_VARIABLE)
        if token:
            sent["Authorization"] = f"Bearer {token}"
        try:
            connection.request(method, f"/api/v1{path}", body, sent)
            answer = connection.getresponse()
            document = msgspec.json.decode(answer.read())
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            raise Unavailable(
                f"The server at {self._server.url} holds the store but does not answer: {error}."
            ) from None
        finally:
            connection.close()
        if answer.status >= 400:
            raise error_of(answer.status, str(document.get("detail", answer.reason)))
        return document
