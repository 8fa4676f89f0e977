"""The whole loop on a real run: record it, ask what to change, change that, measure."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from marey.replay.model import replay_model
from marey.replay.search import Limits, search_changes
from marey.trace.dataflow import build_dataflow
from marey.trace.run.trace_run import open_run
from tests.real.torch_launch import may_shape_links

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]

# Data-parallel training whose gradients take about as long over a slow link as its compute.
TRAINING: dict[str, Any] = {
    "kind": "ddp",
    "width": 256,
    "hidden": [512, 256, 512, 256, 512],
    "ms_per_sample": [1.0, 1.0, 1.0, 1.0, 1.0],
    "batch": 12,
    "mbit": 200,
}


def load_recorder() -> ModuleType:
    """The script that records such runs."""
    path = Path(__file__).resolve().parents[2] / "scripts" / "record_what_if.py"
    spec = importlib.util.spec_from_file_location("record_what_if", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Made only where the machine permits namespaces, as a slow link is.
if may_shape_links():

    def test_the_first_proposal_is_made_and_measured(
        need_module: Callable[[str], Any], tmp_path: Path
    ) -> None:
        need_module("torch")
        recorder = load_recorder()
        with recorder.Network("lp", recorder.RANKS) as network:

            def train(name: str, bucket_mb: int) -> float:
                setting = {**TRAINING, "bucket_mb": bucket_mb}
                steps_ms: list[float] = recorder.record_run(network, setting, tmp_path / name)
                return statistics.median(steps_ms)

            before_ms = train("before", 25)
            flow = build_dataflow(open_run(tmp_path / "before", cache=tmp_path / "cache"))
            found = search_changes(replay_model(flow, before_ms), flow, Limits())
            best = found.proposals[0].prediction
            assert best.changes == ("bucket=1MB",)
            after_ms = train("after", 1)
        assert after_ms < before_ms
        assert abs(best.predicted_ms / after_ms - 1) < 0.15, (before_ms, best, after_ms)
