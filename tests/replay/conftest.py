"""Models of the recorded runs, each read once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marey.model.training.dataflow import Dataflow
from marey.replay.model import ReplayModel, replay_model
from marey.trace.dataflow import build_dataflow
from marey.trace.run.trace_run import open_run


@pytest.fixture(scope="session")
def recordings(data_dir: Path) -> Path:
    """The folder of runs that were really changed, with their truth."""
    folder = data_dir / "recordings" / "what-if"
    if not folder.is_dir():
        pytest.skip("real data not found through MAREY_DATA (recordings of changed runs)")
    return folder


@pytest.fixture(scope="session")
def truth(recordings: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((recordings / "truth.json").read_text())
    return document


@pytest.fixture(scope="session")
def read_flow(
    recordings: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Dataflow]:
    """The data-flow tables of a run by its name."""
    cache = tmp_path_factory.mktemp("converted")
    known: dict[str, Dataflow] = {}

    def read(name: str) -> Dataflow:
        if name not in known:
            known[name] = build_dataflow(open_run(recordings / name, cache=cache))
        return known[name]

    return read


@pytest.fixture(scope="session")
def read_model(
    read_flow: Callable[[str], Dataflow], truth: dict[str, Any]
) -> Callable[[str], ReplayModel]:
    """The replay model of a run by its name, with its plain step time."""
    known: dict[str, ReplayModel] = {}

    def read(name: str) -> ReplayModel:
        if name not in known:
            plain = truth["runs"][name]["step_ms"]
            known[name] = replay_model(read_flow(name), plain)
        return known[name]

    return read
