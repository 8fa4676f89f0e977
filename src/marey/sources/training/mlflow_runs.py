"""Runs of an MLflow server, through its REST interface."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import urllib3

from marey.model.errors import InvalidInput, NotFound, Unavailable, shown

MOST_RUNS = 500
LARGEST_ANSWER = 64 << 20
_ROOT = "/api/2.0/mlflow/"


@dataclass(frozen=True)
class MlflowRun:
    """A run: metrics as (time in seconds, step, value) by key."""

    run_id: str
    name: str
    tags: dict[str, str]
    params: dict[str, str]
    metric_keys: tuple[str, ...]


@dataclass
class MlflowServer:
    """One server; nothing is asked before it is needed."""

    url: str
    token: str = ""
    timeout_s: float = 30.0
    _pool: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise InvalidInput(f"'{shown(self.url)}' is no address of an MLflow server (http…).")
        self._pool = urllib3.PoolManager(timeout=self.timeout_s, retries=False)

    def find_runs(self, experiment: str) -> list[MlflowRun]:
        """Return the runs of an experiment, by its name or number, the newest first."""
        number = experiment if experiment.isdigit() else self._experiment_id(experiment)
        wish = {"experiment_ids": [number], "max_results": MOST_RUNS}
        found = self._ask("POST", "runs/search", wish).get("runs", [])
        return [_run_of(entry) for entry in found]

    def read_metric(self, run_id: str, key: str) -> list[tuple[float, int, float]]:
        """Return the history of a metric as (time in seconds, step, value), by step."""
        points: list[tuple[float, int, float]] = []
        query = {"run_id": run_id, "metric_key": key}
        while True:
            page = self._ask("GET", "metrics/get-history", query)
            points += [
                (int(m["timestamp"]) / 1000, int(m.get("step", 0)), float(m["value"]))
                for m in page.get("metrics", [])
            ]
            token = page.get("next_page_token")
            if not token:
                return sorted(points, key=lambda point: (point[1], point[0]))
            query["page_token"] = token

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def _experiment_id(self, name: str) -> str:
        found = self._ask("GET", "experiments/get-by-name", {"experiment_name": name})
        return str(found["experiment"]["experiment_id"])

    def _ask(self, method: str, path: str, wish: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        address = self.url.rstrip("/") + _ROOT + path
        try:
            if method == "POST":
                answer = self._pool.request(method, address, json=wish, headers=headers)
            else:
                answer = self._pool.request(method, address, fields=wish, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(f"MLflow at {shown(self.url)} does not answer: {error}.") from None
        if answer.status == 404:
            raise NotFound(f"MLflow at {shown(self.url)} has no {path.split('/')[0]} {wish}.")
        if answer.status != 200 or len(answer.data) > LARGEST_ANSWER:
            raise Unavailable(f"MLflow at {shown(self.url)} answered {answer.status}.")
        try:
            return dict(msgspec.json.decode(answer.data))
        except (msgspec.DecodeError, TypeError, ValueError):
            raise Unavailable(f"What answers at {shown(self.url)} is no MLflow server.") from None


def _run_of(entry: dict[str, Any]) -> MlflowRun:
    info, data = entry["info"], entry.get("data", {})
    tags = {str(tag["key"]): str(tag["value"]) for tag in data.get("tags", [])}
    run_id = str(info["run_id"])
    return MlflowRun(
        run_id,
        str(info.get("run_name") or tags.get("mlflow.runName") or run_id),
        tags,
        {str(p["key"]): str(p["value"]) for p in data.get("params", [])},
        tuple(str(m["key"]) for m in data.get("metrics", [])),
    )
