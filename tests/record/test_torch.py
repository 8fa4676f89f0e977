"""The recorder on a real PyTorch process: the steps asked for, and a run that survives failures."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marey.record import Schedule, record_torch


@pytest.fixture
def torch(need_module: Callable[[str], Any]) -> Any:
    return need_module("torch")


def read(path: Path | None) -> dict[str, Any]:
    assert path is not None
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def train(torch: Any, recorder: Any, steps: int) -> None:
    weight = torch.randn(16, 16, requires_grad=True)
    for _ in range(steps):
        (torch.randn(4, 16) @ weight).sum().backward()
        recorder.step()


@pytest.mark.real
def test_exactly_the_steps_asked_for_are_recorded(torch: Any, tmp_path: Path) -> None:
    with record_torch(tmp_path, schedule=Schedule(skip=1, warmup=1, steps=3)) as recorder:
        train(torch, recorder, 7)
    trace = read(recorder.path)
    marks = {e["name"] for e in trace["traceEvents"] if "ProfilerStep" in str(e.get("name"))}
    assert marks == {"ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"}
    told = trace["mareyRecord"]
    assert (told["rank"], told["world_size"], told["steps"]) == (0, 1, [2, 5])
    assert told["host"]
    assert told["notes"] == []


@pytest.mark.real
def test_an_optimizer_can_take_the_steps_by_itself(torch: Any, tmp_path: Path) -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with record_torch(tmp_path, schedule=Schedule(steps=2), labels={"job": "7"}) as recorder:
        recorder.follow(optimizer)
        for _ in range(5):
            weight.sum().backward()
            optimizer.step()
    assert read(recorder.path)["mareyRecord"]["labels"] == {"job": "7"}
    optimizer.step()  # the hook is gone: nobody counts this one


@pytest.mark.real
def test_a_run_that_fails_keeps_what_was_recorded_and_its_own_error(
    torch: Any, tmp_path: Path
) -> None:
    recorder = record_torch(tmp_path, schedule=Schedule(skip=0, warmup=1, steps=50))

    def fail() -> None:
        with recorder:
            train(torch, recorder, 3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert "ZeroDivisionError" in read(recorder.path)["mareyRecord"]["notes"][0]


def test_an_impossible_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="steps ≥ 1"):
        Schedule(steps=0)
