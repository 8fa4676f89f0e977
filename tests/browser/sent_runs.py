"""Synthetic runs sent to a server over HTTP, as a script would send them."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from marey.trace.results import VerdictKind
from marey.trace.synthetic import Layout, Scenario, SyntheticRun, make_run
from marey.trace.synthetic.kineto import write_kineto
from tests.browser.conftest import Demo
from tests.waiting import PATIENCE_S, until

# The seed's two cases: a language model of 40 layers in three dimensions, and a ResNet-50.
LANGUAGE_MODEL = Layout(data=2, tensor=2, pipeline=4, micro_batches=2, layers=10)
# Gradients that hide beside a layer's backward, if they are reduced there.
LARGE_GRADIENTS = replace(LANGUAGE_MODEL, buckets=5.0)
RESNET = Layout(data=8, layers=16, model="resnet50")
SCENARIOS = {
    "slow device": Scenario(LANGUAGE_MODEL, VerdictKind.SLOW_WORKER, steps=2, seed=3),
    "all-reduce beside backward": Scenario(LARGE_GRADIENTS, steps=2, seed=3),
    "all-reduce at the end": Scenario(replace(LARGE_GRADIENTS, reduce_at="end"), steps=2, seed=3),
    "ResNet-50": Scenario(RESNET, VerdictKind.SLOW_WORKER, steps=3, seed=2),
}


def send_files(demo: Demo, name: str, paths: Iterable[Path]) -> str:
    """Send a run's files and return its id; it is not converted yet."""
    run = str(demo.send("POST", "/traces", {"name": name})["id"])
    for path in paths:
        content = path.read_bytes()
        query = urllib.parse.urlencode({"file": path.name, "bytes": len(content)})
        request = urllib.request.Request(
            f"{demo.url}/api/v1/traces/{run}/files?{query}",
            content,
            demo.owner_headers,
            method="PUT",
        )
        urllib.request.urlopen(request, timeout=PATIENCE_S).close()
    return run


def find_run(demo: Demo, run: str) -> dict[str, Any]:
    """Return what the server says about a run."""
    request = urllib.request.Request(f"{demo.url}/api/v1/traces/{run}", headers=demo.owner_headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        summary: dict[str, Any] = json.load(answer)["run"]
    return summary


def convert_run(demo: Demo, run: str) -> dict[str, Any]:
    """Convert a run and return what the server says when that is over."""
    demo.send("POST", f"/traces/{run}/convert", {})
    until(
        lambda: find_run(demo, run)["state"] not in ("waiting", "converting"),
        "the conversion",
        pause_s=0.2,
    )
    return find_run(demo, run)


def send_scenario(demo: Demo, name: str, folder: Path) -> tuple[str, SyntheticRun]:
    """Send and convert one of the scenarios; return the run's id and what is true of it."""
    made = make_run(SCENARIOS[name])
    run = send_files(demo, name, write_kineto(made.run, folder))
    summary = convert_run(demo, run)
    assert summary["state"] == "ready", summary
    return run, made
