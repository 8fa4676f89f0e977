"""Folders of poll snapshots as they come: other columns, names instead of numbers, no limits."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from marey.model.errors import InvalidInput, NotFound
from marey.queue.forecast.poll_files import read_polls
from marey.queue.forecast.poll_table import FUTURE_COLUMNS

YEAR_S = 365 * 86400
ROW = {
    "job_unique_id": "41", "poll_time": "2021-05-03 12:00:00", "submit_time": "2021-05-03 11:00:00",
    "partition_id_y": "7", "account_id": "3", "req_cpus": "8", "time_limit_sec": "3600",
    "poll_wait_sec": "600", "level_fs_poll": "1.5",
    "req_tres": '"billing=8,cpu=8,gres/gpu:a100=2,node=3"',
}  # fmt: skip


def write_poll(folder: Path, *rows: dict[str, str], name: str = "poll.csv") -> Path:
    """Write a snapshot of the usual row with other values; one that is None is left out."""
    columns = [
        key for key in {**ROW, **(rows[0] if rows else {})} if (rows or [{}])[0].get(key) != "–"
    ]
    lines = [",".join(columns)]
    lines += [",".join({**ROW, **row}[key] for key in columns) for row in rows]
    text = "\n".join(lines) + "\n"
    if name.endswith(".gz"):
        (folder / name).write_bytes(gzip.compress(text.encode()))
    else:
        (folder / name).write_text(text)
    return folder


def test_a_snapshot_is_read_whether_compressed_or_not(tmp_path: Path) -> None:
    write_poll(tmp_path, {}, name="a.csv.gz")
    write_poll(tmp_path, {"job_unique_id": "42", "poll_time": "2021-05-02 12:00:00"})
    table = read_polls(tmp_path)
    assert table.job.tolist() == [42, 41]
    assert (table.gpus[0], table.nodes[0], table.wait_s[0]) == (2.0, 3.0, 600.0)


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("3600", 3600), ("UNLIMITED", YEAR_S), ("inf", YEAR_S), ("", 0), ("1-02:00:00", 93600),
     ("7 days 00:00:00", 604800), ("00:30:00", 1800), ("-5", 0), ("9e99", YEAR_S)],
)  # fmt: skip
def test_limits_are_read_in_every_form(tmp_path: Path, limit: str, seconds: float) -> None:
    assert read_polls(write_poll(tmp_path, {"time_limit_sec": limit})).limit_s.tolist() == [seconds]


def test_a_limit_that_is_none_of_the_forms_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="time_limit_sec is 'soon'; seconds, 7-00:00:00 or"):
        read_polls(write_poll(tmp_path, {"time_limit_sec": "soon"}))


@pytest.mark.parametrize("wait", ["", "nan", "-3"])
def test_a_wait_that_is_not_known_is_not_a_wait_of_nothing(tmp_path: Path, wait: str) -> None:
    assert np.isnan(read_polls(write_poll(tmp_path, {"poll_wait_sec": wait})).wait_s).all()


def test_waits_come_from_the_starts_where_they_are_not_given(tmp_path: Path) -> None:
    gone = {"poll_wait_sec": "–", "start_time": "2021-05-03 12:10:00"}
    table = read_polls(write_poll(tmp_path, gone, {"start_time": ""}))
    assert table.wait_s[0] == 600.0
    assert np.isnan(table.wait_s[1])


def test_limits_come_from_their_text_where_the_seconds_are_missing(tmp_path: Path) -> None:
    rows = {"time_limit_sec": "–", "time_limit": "0 days 02:00:00"}
    assert read_polls(write_poll(tmp_path, rows)).limit_s.tolist() == [7200.0]


def test_names_are_told_apart_whatever_they_look_like(tmp_path: Path) -> None:
    ids = ["41", "41.0", "41_7", "41_8", "job-a", "job-b", "9" * 30, "9" * 29 + "8"]
    rows = [{"job_unique_id": one, "partition_id_y": f"gpu-{one}"} for one in ids]
    table = read_polls(write_poll(tmp_path, *rows))
    assert table.job[0] == table.job[1] == 41
    assert len(set(table.job.tolist())) == len(ids) - 1
    assert table.job[2] < table.job[3]
    # The same name in another folder is the same number.
    other = tmp_path / "other"
    other.mkdir()
    assert read_polls(write_poll(other, rows[4])).job[0] == table.job[4]


def test_an_account_without_use_has_the_largest_level_of_fair_share(tmp_path: Path) -> None:
    table = read_polls(write_poll(tmp_path, {}, {"level_fs_poll": "inf"}, {"level_fs_poll": ""}))
    levels = table.shares.max(axis=1)
    assert levels[1] > levels[0] > levels[2]
    assert np.isfinite(table.shares).all()


def test_nobody_was_submitted_after_the_poll_at_which_it_waited(tmp_path: Path) -> None:
    table = read_polls(write_poll(tmp_path, {"submit_time": "2030-01-01T00:00:00Z"}))
    assert table.submit_s[0] == table.poll_s[0]


@pytest.mark.parametrize("gone", ["job_unique_id", "time_limit_sec", "poll_wait_sec"])
def test_a_column_that_is_needed_is_named(tmp_path: Path, gone: str) -> None:
    with pytest.raises(InvalidInput, match=f"lacks the columns.*{gone}"):
        read_polls(write_poll(tmp_path, {gone: "–"}))


def test_a_number_that_is_none_is_refused_with_its_column(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="Column poll_wait_sec is not of numbers"):
        read_polls(write_poll(tmp_path, {"poll_wait_sec": "abc"}))


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b broken", b"\x00\xff\x00"])
def test_a_file_that_is_no_snapshot_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv.gz").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"a\.csv\.gz"):
        read_polls(tmp_path)


def test_a_folder_without_snapshots_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"expected \*\.csv"):
        read_polls(tmp_path)


def test_nothing_is_read_of_the_columns_that_know_the_future(tmp_path: Path) -> None:
    """Every value of such a column is another one: what is forecast from stays the same."""
    tables = []
    for name, value in (("as_it_was", "1"), ("changed", "987654")):
        folder = tmp_path / name
        folder.mkdir()
        rows = [dict.fromkeys(FUTURE_COLUMNS, value) | {"job_unique_id": str(i)} for i in range(3)]
        tables.append(read_polls(write_poll(folder, *rows)))
    first, second = tables
    assert first.wait_s.tolist() != second.wait_s.tolist()
    for column, values in vars(first).items():
        if column != "wait_s":
            assert np.array_equal(values, getattr(second, column)), column
