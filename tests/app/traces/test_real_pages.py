"""What the pages of recorded runs show, checked on the tables behind them."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from marey.app.traces.conversion_process import ConversionResult, ConversionTask, convert
from marey.app.traces.flow_query import ask_flow
from marey.app.traces.trace_documents import ExecutionFlow
from marey.app.traces.trace_queries import RUN_TABLES, ask_rows, ask_table
from marey.trace.views.view_files import RunViews
from marey.trace.views.view_kinds import ViewKind

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
STEP_TIME_MS = 2214.4


class Pages:
    """Recorded runs, each converted once as the server converts it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, RunViews] = {}
        self.results: dict[str, ConversionResult] = {}

    def views(self, name: str) -> RunViews:
        if not (DATA / name).exists():
            pytest.skip("real data not found through MAREY_DATA (recorded runs)")
        if name not in self._open:
            into = self._folder / name.replace("/", "-")
            task = ConversionTask([str(DATA / name)], str(into / "cache"), str(into / "views"))
            self.results[name] = convert(task, io.StringIO())
            self._open[name] = RunViews(into / "views")
        return self._open[name]

    def count(self, name: str) -> dict[str, int]:
        """Return the rows of each table of a run."""
        views = self.views(name)
        return {
            table: ask_table(views, table, where="", sort="", limit=1).facts["total"]
            for table in RUN_TABLES
        }

    def flow(self, name: str) -> ExecutionFlow:
        views = self.views(name)
        return ask_flow(views, views.step(None), stage=None, where="")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory.mktemp("pages"))


def test_a_pipeline_of_bytedance_shows_its_stages_exchanges_and_steps(pages: Pages) -> None:
    name = "traces/bytedance-ST"
    counts = pages.count(name)
    views = pages.views(name)
    recorded = pq.read_table(DATA / name / "trace-ST.parquet")
    steps = len(set(recorded["step"].to_pylist()))
    assert counts["steps"] == counts["breakdown"] == 8 * steps
    rows = ask_rows(views.step(None), "stage").table.to_pylist()
    assert Counter(row["stage"] for row in rows) == {0: 2, 1: 2, 2: 2, 3: 2}
    wall = ask_table(views, "steps", where="", sort="", limit=10_000).table
    longest: dict[int, int] = {}
    for row in wall.to_pylist():
        longest[row["step"]] = max(longest.get(row["step"], 0), row["dur_ns"])
    assert sum(longest.values()) / len(longest) / 1e6 == pytest.approx(STEP_TIME_MS, rel=0.02)
    flow = pages.flow(name)
    sends = sum(node.kind == "send" for node in flow.nodes)
    edges = [edge for edge in flow.edges if edge.evidence == "communication"]
    assert len(edges) == sends == sum(node.kind == "receive" for node in flow.nodes) > 20
    waits = ask_table(views, "waits", where="", sort="-gpu_seconds", limit=5).table.to_pylist()
    assert views.stages[waits[0]["culprit"]] == 3
    # Its clock counts from the start of the run, which is no date.
    assert pages.results[name].start_ms is None


def test_an_execution_trace_alone_is_a_graph_by_its_tensors(pages: Pages) -> None:
    name = "traces/chakra-et"
    flow = pages.flow(name)
    evidence = Counter(edge.evidence for edge in flow.edges)
    assert evidence["tensor"] > 0.95 * len(flow.edges)
    assert sum(node.name == "aten::conv2d" for node in flow.nodes) == 3 * 53
    # It has no times, and none are shown.
    assert {node.max_ms for node in flow.nodes} == {0.0}
    missing = [row for row in ask_rows(pages.views(name).step(None), "stage").table.to_pylist()
               if row["missing"]]  # fmt: skip
    assert [row["rank"] for row in missing] == [1]


@pytest.mark.parametrize(
    ("name", "steps"),
    [("traces/hta/nccl_parser_config", 3), ("traces/hta/amd_trace", 2)],
)
def test_single_ranks_of_hta_open_at_a_step_with_kernels(
    pages: Pages, name: str, steps: int
) -> None:
    views = pages.views(name)
    counts = pages.count(name)
    assert counts["steps"] == steps
    assert counts["kernels"] > 10
    assert counts["critical-path"] > 0
    bands = views.step(None).view.bands
    assert (bands["kind"] == ViewKind.COMPUTE).sum() > 10
    assert len(pages.flow(name).nodes) == len(bands)


def test_a_rank_of_tracelens_shows_its_kernels_and_seven_that_were_not_traced(
    pages: Pages,
) -> None:
    name = "traces/tracelens/traces/mi300/resnet_act_checkpoint.json.gz"
    rows = ask_rows(pages.views(name).step(None), "stage").table.to_pylist()
    assert [row["missing"] for row in rows] == [False] + [True] * 7
    counts = pages.count(name)
    assert counts["kernels"] > 500
    assert counts["steps"] == 3
    assert Counter(e.evidence for e in pages.flow(name).edges)["backward"] > 50


def test_memory_over_time_of_a_gpu_trace_is_shown(pages: Pages) -> None:
    name = "traces/tracelens/traces/h100/Falconsai_nsfw_image_detection__1016002.json.gz"
    assert pages.count(name)["memory"] > 500
    row = ask_rows(pages.views(name).step(None), "stage").table.to_pylist()[0]
    assert row["peak_memory_bytes"] > 1e6


def test_ascend_timelines_show_both_devices_and_their_collectives(pages: Pages) -> None:
    name = "recordings/ascend/msprof"
    counts = pages.count(name)
    assert (counts["steps"], counts["collectives"]) == (6, 3)
    rows = ask_rows(pages.views(name).step(None), "stage").table.to_pylist()
    assert [row["rank"] for row in rows if not row["missing"]] == [0, 1]


def test_the_timeline_of_the_seed_shows_four_devices(pages: Pages) -> None:
    name = "recordings/ascend/marey_graph"
    counts = pages.count(name)
    assert counts["collectives"] > 200
    assert counts["waits"] > 0
    assert len(ask_rows(pages.views(name).step(None), "stage").table) == 4


def test_the_strategies_of_mindspore_are_exact(pages: Pages) -> None:
    flow = pages.flow("recordings/ascend/parallel_strategy")
    assert {node.sharding.evidence for node in flow.nodes} == {"exact", "unknown"}
    assert {edge.evidence for edge in flow.edges} == {"tensor"}
