"""A synthetic run with a slow rank, and real ones, written once for all tests of views."""

from __future__ import annotations

from pathlib import Path

import pytest

from marey.trace.analysis import analyse
from marey.trace.results import VerdictKind
from marey.trace.run.trace_run import TraceRun, open_run
from marey.trace.synthetic import Layout, Scenario, SyntheticRun, make_run
from marey.trace.views.making.view_writer import write_views
from marey.trace.views.view_files import RunViews

TORCH = Path(__file__).resolve().parents[4] / "shared" / "data" / "traces" / "torch-cpu"
LAYOUT = Layout(data=8, tensor=2, pipeline=2, micro_batches=4, layers=4)


@pytest.fixture(scope="session")
def slow() -> SyntheticRun:
    """32 ranks of which one computes slowly."""
    return make_run(Scenario(layout=LAYOUT, kind=VerdictKind.SLOW_WORKER, steps=3, seed=5))


@pytest.fixture(scope="session")
def slow_views(slow: SyntheticRun, tmp_path_factory: pytest.TempPathFactory) -> RunViews:
    """What is written for it."""
    folder = tmp_path_factory.mktemp("slow")
    write_views(slow.run, analyse(slow.run), folder)
    return RunViews(folder)


class RealRuns:
    """Real runs, each opened and written once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs: dict[str, TraceRun] = {}

    def run(self, name: str) -> TraceRun:
        """Return one of the recorded runs."""
        if not TORCH.is_dir():
            pytest.skip("real data not found through MAREY_DATA (recorded runs)")
        if name not in self._runs:
            self._runs[name] = open_run(TORCH / name, cache=self._folder / "cache")
        return self._runs[name]

    def views(self, name: str) -> RunViews:
        """Return what is written for it."""
        run = self.run(name)
        folder = self._folder / name
        if not folder.exists():
            write_views(run, analyse(run), folder)
        return RunViews(folder)


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> RealRuns:
    """The recorded runs of torch-cpu."""
    return RealRuns(tmp_path_factory.mktemp("real"))
