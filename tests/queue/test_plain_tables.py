"""The example of the guide runs as it stands, and says what the tables mean."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from marey.model.errors import InvalidInput
from marey.queue.plain_tables import compare_policies, explain_line, make_line
from marey.queue.policy.what_if import LowFidelity

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "queue.md"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """Return the names that the guide's Python example leaves behind."""
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, str(GUIDE), "exec"), names)
    return names


def test_who_is_ahead_and_what_blocks(example: dict[str, Any]) -> None:
    first, second = example["why"].to_pylist()
    assert (first["workload"], first["verdict"], first["ahead_jobs"]) == ("80", "blocked", 0)
    assert first["blocking_workloads"] == ["71"]
    assert "the next to have enough is a2, by its time limit in 20 min" in first["sentence"]
    assert (second["workload"], second["verdict"], second["ahead_gpus"]) == ("81", "behind", 8)


def test_starts_are_forecast_in_order_and_within_what_the_limits_allow(
    example: dict[str, Any],
) -> None:
    first, second = example["when"].to_pylist()
    for row in (first, second):
        assert 0 <= row["p10_s"] <= row["p50_s"] <= row["p90_s"]
    # By the limits the first host is empty after 1200 s; the small job fits beside what runs.
    assert 60 < first["p90_s"] <= 1260
    assert second["p10_s"] < first["p50_s"]


def test_free_room_and_what_is_stranded(example: dict[str, Any]) -> None:
    (room,) = example["room"].to_pylist()
    # Three GPUs are free on one host; one of the two requests does not fit there.
    assert (room["gpus"], room["free"], room["whole_hosts_free"]) == (16, 3, 0)
    assert room["stranded"] == pytest.approx(1.5)


def test_backfill_lets_the_small_job_pass_and_costs_the_large_one_nothing(
    example: dict[str, Any],
) -> None:
    rows = {row["gpus_from"]: row for row in example["waits"].to_pylist()}
    assert rows[1]["mean_wait_now_s"] == pytest.approx(1484, abs=10)
    assert rows[1]["mean_wait_s"] < 60
    assert abs(rows[8]["change_s"]) < 10


def test_arrow_tables_give_the_same_answer_as_lists(example: dict[str, Any]) -> None:
    names = ("waiting", "hosts", "running")
    tables = [pa.Table.from_pylist(example[name]) for name in names]
    assert explain_line(make_line(*tables)).equals(example["why"])


def test_a_missing_column_and_a_history_that_was_otherwise_are_refused(
    example: dict[str, Any],
) -> None:
    with pytest.raises(InvalidInput, match="'waiting' has no column gpus"):
        make_line([{"workload": "1"}], [])
    wrong = [{**row, "start_s": row["submit_s"] + 9000} for row in example["history"]]
    with pytest.raises(LowFidelity):
        compare_policies(wrong, [8], {"backfill": "none"}, {"backfill": "easy"})
