"""``marey trace`` answers in words, in JSON and as a page, and fails in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from marey.cli import main
from marey.cli.training.trace import step_list
from marey.cli.training.trace_text import grid, printable
from marey.model.training.traces import EVENTS

TRACE: dict[str, Any] = {
    "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1}
        | {"ts": n * 1000, "dur": 990}
        for n in range(1, 5)
    ]
    + [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": n * 1000 + at}
        | {"dur": dur, "args": {"stream": 7, "device": 0}}
        for n in range(1, 5)
        for name, at, dur in (("gemm", 100, 500 + n), ("softmax", 700, 100 + n))
    ]
}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "rank0.json"
    path.parent.mkdir()
    path.write_text(json.dumps(TRACE))
    return path


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def ask(*words: str) -> tuple[int, str, str]:
        code = main(["trace", *words, "--cache", str(tmp_path / "cache")])
        said = capsys.readouterr()
        return code, said.out, said.err

    return ask


Ask = Callable[..., tuple[int, str, str]]


def test_the_verdict_comes_first_in_words(ask: Ask, trace: Path) -> None:
    code, out, err = ask("report", str(trace.parent))
    assert (code, err) == (0, "")
    assert out.splitlines()[0].isupper() or "[" in out.splitlines()[0]
    assert "gemm" in out
    assert "rank" in out


def test_json_is_one_document_with_the_flag_on_either_side(ask: Ask, trace: Path) -> None:
    code, out, _ = ask("report", str(trace), "--json")
    assert code == 0
    assert json.loads(out)["ranks"][0]["rank"] == 0
    assert main(["trace", "--json", "steps", str(trace), "--cache", str(trace.parent / "c")]) == 0


def test_a_page_is_written_where_asked(ask: Ask, trace: Path, tmp_path: Path) -> None:
    code, _, err = ask("report", str(trace), "--html", str(tmp_path / "out.html"))
    assert code == 0
    assert "out.html" in err
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")


def test_a_page_that_cannot_be_written_is_refused_before_the_work(
    ask: Ask, trace: Path, tmp_path: Path
) -> None:
    code, out, err = ask("report", str(trace), "--html", str(tmp_path / "no" / "out.html"))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "there is no folder" in err


@pytest.mark.parametrize("question", ["report", "steps", "collectives"])
def test_a_missing_path_is_one_message_without_a_traceback(ask: Ask, question: str) -> None:
    code, out, err = ask(question, "no-such-folder")
    assert code != 0
    assert out == ""
    assert err.count("\n") == 1
    assert "no-such-folder" in err
    assert "Traceback" not in err


def test_steps_and_collectives_answer_even_when_there_is_little_to_say(
    ask: Ask, trace: Path
) -> None:
    code, out, _ = ask("steps", str(trace))
    assert code == 0
    assert "4 steps" in out
    code, out, _ = ask("collectives", str(trace))
    assert code == 0
    assert "No collective" in out


def test_diff_names_what_appeared(ask: Ask, trace: Path, tmp_path: Path) -> None:
    other = json.loads(json.dumps(TRACE).replace("softmax", "fused_softmax"))
    (tmp_path / "other.json").write_text(json.dumps(other))
    code, out, _ = ask("diff", str(trace), str(tmp_path / "other.json"))
    assert code == 0
    assert "fused_softmax" in out
    assert "appeared" in out
    assert "vanished" in out


def test_the_headline_of_selected_steps_speaks_of_them_alone(ask: Ask, tmp_path: Path) -> None:
    lengths = {1: 900, 2: 100, 3: 900, 4: 300}
    steps = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1}
        | {"ts": n * 1000, "dur": dur}
        for n, dur in lengths.items()
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": [*steps, *TRACE["traceEvents"][4:]]}))
    _, out, _ = ask("steps", str(path), "--where", "step=2", "--json")
    document = json.loads(out)
    (only,) = document["steps"]
    assert document["step_time"]["count"] == 1
    assert document["step_time"]["median_ms"] == pytest.approx(only["duration_ms"])
    _, out, _ = ask("steps", str(path), "--where", "step=2")
    assert out.startswith("1 step: median 100 µs")
    assert ask("steps", str(path), "--where", "step=77")[1].strip() == "No step fits the selection."


def test_two_steps_of_one_run_are_compared(ask: Ask, trace: Path) -> None:
    code, out, _ = ask(
        "diff", str(trace), str(trace), "--steps-a", "1-2", "--steps-b", "3,4", "--json"
    )
    document = json.loads(out)
    assert code == 0
    assert (document["a_steps"], document["b_steps"]) == ([1, 2], [3, 4])
    code, _, err = ask("diff", str(trace), str(trace), "--steps-a", "99")
    assert code == 3
    assert "Unknown step 99" in err


def test_convert_writes_tables_that_others_can_read(ask: Ask, trace: Path, tmp_path: Path) -> None:
    code, out, _ = ask("convert", str(trace), "--out", str(tmp_path / "tables"))
    assert code == 0
    assert "12 events" in out
    events = pq.read_table(tmp_path / "tables" / "rank00000.parquet")
    assert events.schema.names == EVENTS.names
    texts = pq.read_table(tmp_path / "tables" / "symbols.parquet")["text"].to_pylist()
    assert {texts[code] for code in events["name"].to_pylist()} >= {"gemm", "softmax"}


def test_nothing_is_written_beside_the_traces(ask: Ask, trace: Path) -> None:
    ask("report", str(trace.parent))
    assert [p.name for p in trace.parent.iterdir()] == ["rank0.json"]


@pytest.mark.parametrize(("text", "steps"), [("3", [3]), ("3-5,8", [3, 4, 5, 8])])
def test_step_lists_are_read_as_people_write_them(text: str, steps: list[int]) -> None:
    assert step_list(text) == steps


@pytest.mark.parametrize("text", ["x", "5-3", "0-99999999999", "0-" + "9" * 400])
def test_a_bad_step_list_is_a_usage_error(ask: Ask, trace: Path, text: str) -> None:
    with pytest.raises(SystemExit) as stop:
        ask("diff", str(trace), str(trace), "--steps-a", text)
    assert stop.value.code == 2


def test_hostile_text_cannot_drive_the_terminal() -> None:
    assert "\x1b" not in printable("\x1b[2Jname", 40)
    assert len(printable("x" * 500, 40)) == 40
    assert grid(["a", "b"], [["1", "two"]], left=(1,)) == "a  b\n1  two"


def test_the_critical_path_is_told_in_words_and_whole_in_json(ask: Ask, trace: Path) -> None:
    code, out, err = ask("critical-path", str(trace))
    assert (code, err) == (0, "")
    assert out.startswith("Rank 0, the whole trace: the critical path passes 8 events")
    code, out, _ = ask("critical-path", str(trace), "--rank", "0", "--step", "2", "--json")
    document = json.loads(out)
    assert (code, document["window"], document["events"]) == (0, "step 2", 2)
    assert document["by_kind_ms"]["compute"] == pytest.approx(0.502 + 0.102)
    assert [row["name"] for row in document["by_name"]][:2] == ["gemm", "softmax"]
    assert sum(row["time_ns"] for row in document["path"]) == document["time_ms"] * 1e6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rank", "7"), "Unknown rank 7; this trace has ranks 0."),
        (("--step", "9"), "Unknown step 9; this rank has steps 1 to 4."),
        (("--annotation", "Profiler", "--instance", "4"), "there are instances 0 to 3."),
    ],
)
def test_a_critical_path_of_what_is_not_there_is_refused(
    words: tuple[str, ...], said: str, ask: Ask, trace: Path
) -> None:
    code, out, err = ask("critical-path", str(trace), *words)
    assert (code, out) == (3, "")
    assert said in err
