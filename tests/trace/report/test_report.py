"""The report document keeps its schema and says the same as its parts."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from marey.model.errors import Conflict, MareyError
from marey.model.training.traces import EventKind
from marey.trace.report.report_document import clean, report_document, report_schema
from marey.trace.report.report_html import notable, report_html
from marey.trace.report.verdict_words import WORDINGS, duration, sentence, size, who
from marey.trace.results import VerdictKind
from marey.trace.run.trace_run import TraceRun
from marey.trace.synthetic import Layout, Scenario, make_run
from tests.trace.report.build import event, kernel, run_of

MS = 1_000_000
HOSTILE = "</style><script>alert('x')</script>\x1b[2J\" onload=\"x"


@pytest.fixture(scope="module")
def synthetic() -> dict[str, Any]:
    run = make_run(Scenario(layout=Layout(), kind=VerdictKind.INPUT_BOUND, seed=3)).run
    return report_document(run)


def test_a_synthetic_run_keeps_the_schema(synthetic: dict[str, Any]) -> None:
    jsonschema.validate(synthetic, report_schema())


def test_the_keys_that_others_rely_on_are_there(synthetic: dict[str, Any]) -> None:
    rank = synthetic["ranks"][0]
    assert {
        *("rank", "host", "span_ms", "compute_ms", "comm_ms", "exposed_comm_ms"),
        *("memcpy_ms", "busy_ms", "idle_ms"),
    } <= rank.keys()
    found = synthetic["collectives"]
    assert {"matched", "unmatched", "method", "confidence", "items"} <= found.keys()
    assert {
        *("name", "group", "bytes", "step", "last_rank", "certain", "skew_us", "wait_us"),
        "transfer_us",
    } <= found["items"][0].keys()
    assert {"rank", "offset_us", "residual_us"} <= synthetic["clock"][0].keys()
    assert {"S", "M_W", "M_S", "by_type", "by_stage", "by_worker"} <= synthetic["slowdown"].keys()
    assert {
        *("kind", "ranks", "steps", "recoverable_ms", "confidence", "evidence"),
    } <= synthetic["verdicts"][0].keys()


def test_collectives_are_listed_by_last_arrival(synthetic: dict[str, Any]) -> None:
    arrivals = [item["last_arrival_ns"] for item in synthetic["collectives"]["items"]]
    assert arrivals == sorted(arrivals)


def test_the_last_rank_waits_for_nobody(synthetic: dict[str, Any]) -> None:
    for item in synthetic["collectives"]["items"]:
        waits = item["wait_us"]
        assert waits[str(item["last_rank"])] == pytest.approx(0, abs=0.01)
        assert max(waits.values()) == pytest.approx(item["skew_us"], rel=1e-3, abs=0.1)


def test_waiting_is_never_more_than_exposed_communication(synthetic: dict[str, Any]) -> None:
    for row in [*synthetic["ranks"], *synthetic["steps"]]:
        assert row["exposed_wait_ms"] <= row["exposed_comm_ms"] + 1e-6


def test_the_schema_names_every_kind_of_verdict() -> None:
    listed = report_schema()["properties"]["verdicts"]["items"]["properties"]["kind"]["enum"]
    assert set(listed) == set(VerdictKind)
    assert set(WORDINGS) == set(VerdictKind)


def test_a_cancelled_report_stops_with_one_message() -> None:
    run = run_of({0: [kernel("a", 0, MS)]})
    with pytest.raises(Conflict, match="cancelled"):
        report_document(run, cancelled=lambda: True)


def test_progress_ends_at_one_and_never_goes_back() -> None:
    seen: list[float] = []
    report_document(run_of({r: [kernel("a", 0, MS)] for r in range(3)}), progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1)


def test_what_is_not_a_number_becomes_null() -> None:
    assert clean({"a": float("nan"), "b": [float("inf"), 1.00000049]}) == {
        "a": None,
        "b": [None, 1],
    }


def test_a_path_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(MareyError, match="nothing-here"):
        report_document(tmp_path / "nothing-here", tmp_path / "cache")


class Page(HTMLParser):
    """What a browser would make of the page: tags, and what they would fetch or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def hostile_run() -> TraceRun:
    step = event("ProfilerStep#1", EventKind.ANNOTATION, 0, 20 * MS, step=1)
    rows = [
        step,
        event(HOSTILE, EventKind.CPU_OP, 0, MS, stream=1, module=HOSTILE, step=1),
        kernel(HOSTILE, MS, 5 * MS, step=1, launch=1),
        event(HOSTILE, EventKind.COLLECTIVE, 7 * MS, MS, on_device=True, group=HOSTILE, step=1),
    ]
    return run_of({0: rows, 1: rows}, host=HOSTILE, device_name=HOSTILE, backend=HOSTILE)


def test_hostile_names_stay_text_in_the_page() -> None:
    page = Page(report_html(report_document(hostile_run()), name=HOSTILE))
    assert "script" not in page.tags
    assert not [name for name in page.attributes if name.startswith("on")]


def test_the_page_is_self_contained(synthetic: dict[str, Any]) -> None:
    text = report_html(synthetic, name="run")
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(page.tags)
    assert not {"src", "href", "srcset"} & set(page.attributes)
    assert not re.search(r"url\(|@import|https?://", text)
    assert page.tags.count("svg") >= 2


def test_many_ranks_are_reduced_to_those_worth_a_look() -> None:
    rows = [{"rank": r, "busy_ms": float(r % 100)} for r in range(1000)]
    shown = notable(rows, frozenset({500}), 16)
    ranks = [row["rank"] for row in shown]
    assert len(shown) == 16
    assert 500 in ranks
    assert ranks == sorted(ranks)
    assert {0.0, 99.0} <= {row["busy_ms"] for row in shown}


def test_words_are_for_people() -> None:
    verdict = {"kind": "input_bound", "ranks": [1]}
    assert sentence(verdict, {1: "n7"}).startswith("Everyone waits for rank 1 on n7")
    everyone = {"kind": "input_bound", "ranks": [0, 1]}
    assert sentence(everyone, world=2) == sentence(verdict, world=1)
    assert sentence(verdict, world=1) == "The devices wait for their next batch."
    assert who([4, 5, 6, 9]) == "ranks 4-6, 9"
    assert [duration(0.0421), duration(4.14), duration(1930)] == ["42 µs", "4.1 ms", "1.93 s"]
    assert size(1_048_576) == "1.05 MB"


REAL = (
    *("torch-cpu/ddp", "torch-cpu/ddp-slow-data", "torch-cpu/fsdp2", "torch-cpu/pp"),
    *("jax-cpu/multi", "jax-cpu/spmd", "bytedance-ST", "chakra-et", "deepseek"),
    *("kineto-resnet50/resnet50_num_workers_0", "kineto-resnet50/resnet50_num_workers_4"),
    *("hta/amd_trace", "hta/cpu_only", "hta/distributed_info_unavailable"),
    *("hta/nccl_parser_config", "hta/rank_unavailable", "hta/trace_filter"),
    *("hta/trace_diff/control", "hta/trace_diff/test"),
    *("hta/critical_path/alexnet", "hta/critical_path/cuda_event_sync"),
    *("hta/critical_path/cuda_event_sync_multi_stream", "hta/critical_path/simple_add"),
    *("tracelens/traces/h100", "tracelens/traces/mi300", "tracelens/traces/b200"),
)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("path", REAL)
def test_the_report_of_every_real_folder_keeps_the_schema(
    path: str, real_run: Callable[[str], TraceRun]
) -> None:
    document = report_document(real_run(path))
    jsonschema.validate(document, report_schema())
    assert document["ranks"]
    page = Page(report_html(document, name=path))
    assert "script" not in page.tags
