"""What a store or the server that holds it says, for the views of a cluster."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import urllib3

from marey.app.queries.server_client import ask, find_token, is_on_this_machine, open_pool
from marey.app.queries.workspace import Workspace
from marey.live.quantise import NO_VALUE
from marey.live.wire_format import read_full_column, read_table, split_message
from marey.model.errors import NotFound, Unavailable
from marey.model.metrics import metric_named
from marey.model.names import DEFAULT_CLUSTER
from marey.model.times import format_time
from marey.store.holder import StoreHolder, find_holder

SNAPSHOT = "application/vnd.marey.snapshot"
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class AskSnapshot:
    """Every GPU and workload at a moment, as the message that the web app reads."""

    cluster: str = DEFAULT_CLUSTER
    at_ms: int | None = None
    metrics: tuple[str, ...] = ("util",)

    def ask(self, workspace: Workspace) -> bytes:
        """Return the message."""
        workspace.check_cluster(self.cluster)
        return workspace.frame_at(self.cluster, self.at_ms, self.metrics).snapshot(self.metrics)

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/cluster"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        at = {} if self.at_ms is None else {"at": format_time(self.at_ms)}
        return {"cluster": self.cluster, "metrics": ",".join(self.metrics), **at}


def read_snapshot(store: str | Path, question: AskSnapshot) -> bytes:
    """Return the cluster at a moment, from the store or the server that holds it."""
    for metric in question.metrics:
        metric_named(metric)
    path = check_store(store)
    server = find_holder(path)
    if server is not None:
        return _fetch_snapshot(server, question)
    return base64.b64decode(ask(path, question))


def check_store(store: str | Path) -> Path:
    """Return the path of a store that exists."""
    path = Path(store)
    if not path.exists():
        raise NotFound(f"There is no store {path}.")
    return path


def _fetch_snapshot(server: StoreHolder, question: AskSnapshot) -> bytes:
    headers = {"Accept": SNAPSHOT}
    token = find_token(server) if is_on_this_machine(server.url) else ""
    if token:
        headers["Authorization"] = f"Bearer {token}"
    url = f"{server.url}/api/v1{question.path()}?{urlencode(question.query())}"
    try:
        with open_pool(server) as pool:
            answer = pool.request("GET", url, headers=headers, timeout=_TIMEOUT_S, retries=False)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable(f"The server at {server.url} does not answer: {error}.") from None
    if answer.status != 200:
        raise Unavailable(f"The server at {server.url} answered {answer.status}.")
    return bytes(answer.data)


def snapshot_tables(message: bytes) -> tuple[pa.Table, pa.Table]:
    """Return the GPUs, with a column per metric, and the workloads of a message."""
    header, parts = split_message(message)
    units = read_table(parts["units"])
    rows = units["row"].to_numpy()
    for entry in header["parts"]:
        if "metric" not in entry:
            continue
        values = _decode_column(parts[entry["name"]], entry)[rows]
        units = units.append_column(entry["metric"], pa.array(values, from_pandas=True))
    return units.drop(["row"]), read_table(parts["workloads"])


def _decode_column(payload: bytes, entry: dict[str, Any]) -> Any:
    codes = read_full_column(payload)
    values = entry["scale_offset"] + codes.astype(np.float64) * entry["scale_step"]
    return np.where(codes == NO_VALUE, np.nan, values)
