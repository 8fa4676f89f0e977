"""Trackers of experiments as sources of progress: once each, in order, absent when not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from marey.app.collect.open_sources import SiteSources
from marey.app.settings.source_settings import MlflowSettings, TensorboardSettings
from marey.model.errors import InvalidInput, Unavailable
from marey.sources.training.progress_sources import EventFolder, ProgressSource
from tests.compare.test_run_readers import record

NOW_MS = 1_800_000_000_000


def write(folder: Path, steps: range) -> None:
    folder.mkdir(exist_ok=True)
    data = b"".join(record(1.7e9 + step, step, "loss", 4.0 / step) for step in steps)
    (folder / "events.out.tfevents.1").write_bytes(data)


def test_each_report_is_told_once_under_its_workload(tmp_path: Path) -> None:
    write(tmp_path / "job-4711", range(1, 4))
    write(tmp_path / "other", range(1, 4))
    source = ProgressSource("tb", EventFolder(tmp_path, "job-"), "east")
    (first,) = source.poll(NOW_MS)
    assert first.cluster == "east"
    assert [(p.workload, p.step, p.loss) for p in first.progress] == [
        ("4711", 1, 4.0),
        ("4711", 2, 2.0),
        ("4711", 3, pytest.approx(4 / 3)),
    ]
    assert source.poll(NOW_MS) == []
    write(tmp_path / "job-4711", range(1, 6))
    (more,) = source.poll(NOW_MS)
    assert [p.step for p in more.progress] == [4, 5]
    assert source.details() == {"workloads": 1}


def test_a_folder_that_is_gone_is_unavailable_and_not_silent(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be read"):
        ProgressSource("tb", EventFolder(tmp_path / "gone")).poll(NOW_MS)


def test_settings_open_them_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "7", range(1, 3))
    (source,) = SiteSources().open([TensorboardSettings(folder=str(tmp_path))])
    (seen,) = source.poll(NOW_MS)
    assert {p.workload for p in seen.progress} == {"7"}
    with pytest.raises(InvalidInput, match="folder is missing"):
        SiteSources().open([TensorboardSettings()])
    with pytest.raises(InvalidInput, match="url and experiment"):
        SiteSources().open([MlflowSettings()])
    (mlflow,) = SiteSources().open([MlflowSettings(url="http://127.0.0.1:1", experiment="a")])
    with pytest.raises(Unavailable, match="does not answer"):
        mlflow.poll(NOW_MS)
