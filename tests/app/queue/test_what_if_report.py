"""The report of a policy: what it says first, who loses, and names that cannot break the page."""

from __future__ import annotations

from typing import Any

from marey.app.queue.what_if_report import summarize_answer, write_what_if_report

WAITS: dict[str, Any] = {
    "jobs": 3, "mean_wait_now_s": 10.0, "mean_wait_s": 7200.0, "p90_wait_now_s": 12.0,
    "p90_wait_s": None, "never_start": 1,
}  # fmt: skip
ANSWER: dict[str, Any] = {
    "losses": ["Workloads of 1 GPU wait longer."],
    "gains": [],
    "by_size": [{"gpus_from": 2, **WAITS}],
    "by_project": [{"project": "<script>x</script>", **WAITS}],
    "by_owner": [{"owner": "ada", **WAITS}],
}


def test_the_report_says_the_error_before_who_loses_and_the_waits() -> None:
    page = write_what_if_report(ANSWER, ["Replayed with an error of 2 %."])
    parts = ["error of 2 %", "Who loses", "Workloads of 1 GPU", "2 to 3", "7,200 s", "ada"]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert "Who gains" not in page


def test_a_name_cannot_become_part_of_the_page() -> None:
    page = write_what_if_report(ANSWER, ["<b>"])
    assert "<script" not in page
    assert "<b>" not in page


def test_the_stores_answer_with_named_rows_is_written_too() -> None:
    named = [{"name": "4 to 7", **WAITS}]
    answer = {**ANSWER, "by_size": named, "by_user": [{"name": "grace", **WAITS}]}
    page = write_what_if_report(answer, [])
    assert "4 to 7" in page
    assert "grace" in page


def test_where_no_start_is_recorded_there_is_no_error_to_tell() -> None:
    lines = summarize_answer(
        {
            "jobs": 3,
            "partition": "gpu",
            "recorded_mean_wait_s": None,
            "replayed_mean_wait_s": None,
            "error": None,
            "refused": "No job has a recorded start.",
            "current": {"order": "fifo", "backfill": "none"},
        }
    )
    assert "(error –)" in lines[0]
    assert lines[1] == "No job has a recorded start."
