"""Synthetic runs sent to a server over HTTP, as a script would send them."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from marey.trace.results import VerdictKind
from marey.trace.synthetic import Layout, Scenario, SyntheticRun, make_run
from marey.trace.synthetic.kineto import write_kineto
from tests.waiting import PATIENCE_S, until

# The seed's two cases: a language model of 40 layers in three dimensions, and a ResNet-50.
LANGUAGE_MODEL = Layout(data=2, tensor=2, pipeline=4, micro_batches=4, layers=10)
RESNET = Layout(data=8, layers=16, model="resnet50")
SCENARIOS = {
    "slow device": Scenario(LANGUAGE_MODEL, VerdictKind.SLOW_WORKER, steps=2, seed=3),
    "slow all-reduce": Scenario(LANGUAGE_MODEL, VerdictKind.COMMUNICATION_BOUND, steps=2, seed=3),
    "ResNet-50": Scenario(RESNET, VerdictKind.SLOW_WORKER, steps=3, seed=2),
}


def call(url: str, method: str, body: bytes | None = None) -> Any:
    """Return what the server answers, as JSON."""
    request = urllib.request.Request(
        url, body, {"Content-Type": "application/json"} if body else {}, method=method
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def send_files(server: str, name: str, paths: Iterable[Path], workload: str = "") -> str:
    """Send a run's files and return its id; it is not converted yet."""
    root = f"{server}/api/v1/traces"
    body = json.dumps({"name": name, "workload": workload}).encode()
    run = str(call(root, "POST", body)["id"])
    for path in paths:
        content = path.read_bytes()
        query = urllib.parse.urlencode({"file": path.name, "bytes": len(content)})
        call(f"{root}/{run}/files?{query}", "PUT", content)
    return run


def convert_run(server: str, run: str) -> dict[str, Any]:
    """Convert a run and return what the server says when that is over."""
    root = f"{server}/api/v1/traces/{run}"
    call(f"{root}/convert", "POST", b"{}")
    until(
        lambda: call(root, "GET")["run"]["state"] not in ("waiting", "converting"),
        "the conversion",
        pause_s=0.2,
    )
    summary: dict[str, Any] = call(root, "GET")["run"]
    return summary


def send_scenario(server: str, name: str, folder: Path) -> tuple[str, SyntheticRun]:
    """Send and convert one of the scenarios; return the run's id and what is true of it."""
    made = make_run(SCENARIOS[name])
    run = send_files(server, name, write_kineto(made.run, folder))
    summary = convert_run(server, run)
    assert summary["state"] == "ready", summary
    return run, made
