"""An import into a store that a running server holds: send the files, wait for its word."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from marey.app.history.imports import ImportDocument, ImportRequest
from marey.app.queries.server_client import request_server
from marey.model.errors import InvalidInput
from marey.store.holder import StoreHolder

_POLL_S = 0.2


def send_import(
    server: StoreHolder, request: ImportRequest, progress: Callable[[float], None]
) -> ImportDocument:
    """Let the server that holds the store import these files; its summary."""
    owner = f"import:{uuid.uuid4()}"
    wish: dict[str, Any] = {
        "owner": owner,
        "skip_bad_rows": request.skip_bad_rows,
        "keep": request.keep.word(),
    }
    for part, path in (("samples", request.samples), ("workloads", request.workloads)):
        if path is not None:
            wish[part] = path.name
            named = urlencode({"owner": owner, "file": path.name})
            _send_file(server, f"/uploads?{named}", path)
    cluster = urlencode({"cluster": request.cluster})
    task = request_server(server, "POST", f"/imports?{cluster}", wish)
    while task["state"] in ("waiting", "running"):
        time.sleep(_POLL_S)
        task = request_server(server, "GET", f"/tasks/{task['id']}")
        progress(task["done"] / task["total"])
    if task["state"] != "done":
        raise InvalidInput(task["error"] or "The import was cancelled.")
    return msgspec.convert(task["result"], ImportDocument)


def _send_file(server: StoreHolder, path: str, file: Path) -> None:
    if not file.is_file():
        raise InvalidInput(f"'{file}' is not a file.")
    with file.open("rb") as body:
        request_server(server, "PUT", path, body)
