"""Real traces, each read once for all tests of reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from marey.trace.run.trace_run import TraceRun, open_run


@pytest.fixture(scope="session")
def trace_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace-cache")


@pytest.fixture(scope="session")
def real_run(data_dir: Path, trace_cache: Path) -> Callable[[str], TraceRun]:
    """Open a path of the real traces."""
    opened: dict[str, TraceRun] = {}

    def get(path: str) -> TraceRun:
        if path not in opened:
            opened[path] = open_run(data_dir / "traces" / path, cache=trace_cache)
        return opened[path]

    return get
