"""The JAX recorder against a stand-in that honestly is not JAX: it writes what JAX's profiler does.

The real thing weighs half a gigabyte; where it is installed, the last test runs it.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from marey.record import record_jax


class FakeJax(types.ModuleType):
    """The few calls the recorder makes, of one process, with JAX's layout of files."""

    def __init__(self, *, writes: tuple[str, ...]) -> None:
        super().__init__("jax")
        self.steps: list[int] = []
        self.folder: Path | None = None
        self.writes = writes
        self.profiler = types.SimpleNamespace(
            start_trace=self._start, stop_trace=self._stop, StepTraceAnnotation=self._step
        )

    def _start(self, folder: str) -> None:
        self.folder = Path(folder)

    @contextmanager
    def _step(self, name: str, *, step_num: int) -> Iterator[None]:
        self.steps.append(step_num)
        yield

    def _stop(self) -> None:
        assert self.folder is not None
        out = self.folder / "plugins" / "profile" / "2026_11_15"
        out.mkdir(parents=True)
        for name in self.writes:
            content = b'{"traceEvents": [{"ph": "X", "name": "dot", "ts": 1, "dur": 2}]}'
            (out / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else b"\x0a")

    def process_index(self) -> int:
        return 0

    def process_count(self) -> int:
        return 1

    def local_devices(self) -> list[Any]:
        return [types.SimpleNamespace(id=n) for n in range(2)]


def fake(monkeypatch: pytest.MonkeyPatch, *writes: str) -> FakeJax:
    module = FakeJax(writes=writes)
    monkeypatch.setitem(sys.modules, "jax", module)
    return module


def test_the_trace_is_kept_with_its_place_in_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = fake(monkeypatch, "h.trace.json.gz", "h.xplane.pb")
    with record_jax(tmp_path, labels={"run": "x"}) as recorder:
        for number in (5, 6):
            with recorder.step(number):
                pass
    assert module.steps == [5, 6]
    assert [p.name for p in tmp_path.iterdir()] == ["rank00000.json.gz"]
    read = json.loads(gzip.decompress((tmp_path / "rank00000.json.gz").read_bytes()))
    told = read["mareyRecord"]
    assert (told["framework"], told["steps"], told["devices"]) == ("jax", [5, 7], [0, 1])
    assert told["started_ns"] > 0
    assert read["traceEvents"][0]["name"] == "dot"
    assert module.folder is not None
    assert not module.folder.exists()


def test_a_protocol_buffer_alone_is_kept_with_its_metadata_beside_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake(monkeypatch, "h.xplane.pb")
    with record_jax(tmp_path):
        pass
    assert {p.name for p in tmp_path.iterdir()} == {
        "rank00000.xplane.pb",
        "rank00000.marey.json",
    }


def test_a_profiler_that_wrote_nothing_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake(monkeypatch)
    with pytest.raises(RuntimeError, match="wrote no trace"), record_jax(tmp_path):
        pass


if importlib.util.find_spec("jax") is not None:

    @pytest.mark.real
    def test_the_real_profiler_is_recorded(tmp_path: Path) -> None:
        import jax

        with record_jax(tmp_path) as recorder, recorder.step(1):
            jax.numpy.ones((64, 64)).sum().block_until_ready()
        assert recorder.path is not None
        assert recorder.path.stat().st_size > 0
