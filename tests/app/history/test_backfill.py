"""History from accounting: what ran before Marey did, once, and never over what it saw itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from marey.app.history import backfill
from marey.app.history.backfill import Histories, HistoryFilling
from marey.app.settings.configuration import load_configuration
from marey.app.settings.source_settings import SlurmSettings
from marey.cli import main
from marey.model.observation import Observation
from marey.model.protocols import WorkloadQuery
from marey.model.times import DAY_MS, parse_time
from marey.model.workloads import Workload, WorkloadState, WorkloadStatus
from marey.store.embedded.embedded_store import EmbeddedStore, open_store
from tests.sources.slurm.tools import asked, tool
from tests.waiting import until

NOW_MS = parse_time("2026-11-16T00:00:00Z")
CONFIG = "Configuration data as of {}\nSLURM_VERSION = 22.05.8\nPrivateData = none"


@pytest.fixture
def site(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tools that repeat a recorded accounting."""
    monkeypatch.setattr(backfill, "PAUSE_S", 0.0)
    monkeypatch.setattr(backfill, "FIRST_RETRY_S", 0.01)
    tool(tmp_path, "scontrol", f'echo "{CONFIG.format("2026-11-16T00:00:00")}"')
    tool(tmp_path, "sacct", f'cat "{data_dir}/slurm/22.05/sacct.json"')
    return tmp_path


@pytest.fixture
def store() -> Iterator[EmbeddedStore]:
    with open_store(None) as opened:
        yield opened


def settings(site: Path, days: int = 3) -> SlurmSettings:
    return SlurmSettings(programs=str(site), history_ms=days * DAY_MS)


def filled(wanted: SlurmSettings, store: EmbeddedStore) -> HistoryFilling:
    """A history that has been asked for to its end."""
    filling = HistoryFilling(wanted, store, lambda: NOW_MS)
    filling.start()
    until(lambda: filling.document()["done"], "the history")
    return filling


def rows(store: EmbeddedStore) -> dict[str, dict[str, object]]:
    return {row["workload"]: row for row in store.workloads(WorkloadQuery(limit=100)).to_pylist()}


def test_each_day_is_asked_once_the_newest_first_and_each_job_is_brought_once(
    site: Path, store: EmbeddedStore
) -> None:
    told = filled(settings(site), store).document()
    assert (told["workloads"], told["error"]) == (14, "")
    assert told["back_to"] == told["reached"] == "2026-11-13T00:00:00Z"
    assert len(rows(store)) == 14
    questions = [line.split() for line in asked(site) if line.startswith("sacct")]
    assert [words[-2:] for words in questions] == [
        [f"--starttime=2026-11-{day - 1}T00:00:00", f"--endtime=2026-11-{day}T00:00:00"]
        for day in (16, 15, 14)
    ]
    assert sum(line.startswith("scontrol show config") for line in asked(site)) == 1
    first = store.workload("default", "1")
    assert [interval["state"] for interval in first["states"]][-1] == "cancelled"
    assert first["start_ms"] is not None


def test_a_job_that_marey_watched_itself_is_left_as_it_is(site: Path, store: EmbeddedStore) -> None:
    seen = Workload("1", name="as I saw it", submit_ms=NOW_MS - DAY_MS, attributes={"mine": "1"})
    status = WorkloadStatus("1", WorkloadState.RUNNING)
    store.apply(Observation(NOW_MS - DAY_MS, workloads=(seen,), statuses=(status,)))
    assert filled(settings(site), store).document()["workloads"] == 13
    kept = rows(store)["1"]
    assert (kept["name"], kept["state"], kept["attributes"]) == (
        "as I saw it",
        "running",
        '{"mine": "1"}',
    )
    # Another start finds everything known.
    assert filled(settings(site), store).document()["workloads"] == 0


def test_the_clock_of_a_controller_that_is_off_is_put_right(
    site: Path, store: EmbeddedStore
) -> None:
    filled(settings(site), store)
    tool(site, "scontrol", f'echo "{CONFIG.format("2026-11-16T00:10:00")}"')
    with open_store(None) as other:
        filled(settings(site), other)
        assert rows(other)["1"]["end_ms"] == rows(store)["1"]["end_ms"] - 600_000  # type: ignore[operator]  # a table's row is untyped


def test_accounting_that_fails_is_said_and_asked_again(
    site: Path, store: EmbeddedStore, data_dir: Path
) -> None:
    tool(site, "sacct", 'echo "slurmdbd is away" >&2; exit 1')
    filling = HistoryFilling(settings(site), store, lambda: NOW_MS)
    filling.start()
    until(lambda: "slurmdbd is away" in filling.document()["error"], "the error")
    assert not filling.document()["done"]
    tool(site, "sacct", f'cat "{data_dir}/slurm/22.05/sacct.json"')
    until(lambda: filling.document()["done"], "the history")
    assert (filling.document()["workloads"], filling.document()["error"]) == (14, "")


def test_only_changed_sources_are_asked_again_after_a_reload(
    site: Path, store: EmbeddedStore
) -> None:
    histories = Histories(store, lambda: NOW_MS)
    histories.change([settings(site, 1)])
    until(lambda: histories.documents()["slurm"]["done"], "the history")
    before = len(asked(site))
    histories.change([settings(site, 1)])
    assert len(asked(site)) == before
    histories.change([settings(site, 2)])
    until(lambda: histories.documents()["slurm"]["done"], "the longer history")
    assert len(asked(site)) > before
    histories.change([SlurmSettings(programs=str(site))])
    assert histories.documents() == {}
    histories.stop()


def test_the_configuration_tells_how_far_back(tmp_path: Path) -> None:
    path = tmp_path / "marey.toml"
    path.write_text('[[source]]\nkind = "slurm"\nhistory = "7d"\n')
    (source,) = load_configuration(path).sources
    assert source.history_ms == 7 * DAY_MS


def test_import_asks_sacct_itself(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(site), prepend=":")
    path = tmp_path / "site.duckdb"
    words = ["import", "--sacct", "--since", "2d", "--store", str(path), "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["workloads"] == 14
    assert main(words) == 0
    again = capsys.readouterr()
    assert json.loads(again.out)["workloads"] == 0
    assert "14 jobs are known to this store already" in again.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sacct", "--workloads", "jobs.csv"], "name one of them"),
        (["--since", "7d", "--samples", "s.csv"], "--since belongs to --sacct"),
        (["--sacct", "--since", "soon"], "'soon' is not a duration"),
        (["--sacct"], "There is no program 'sacct'"),
    ],
)
def test_a_wrong_question_to_accounting_is_refused(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["import", *words, "--store", str(tmp_path / "s.duckdb")]) != 0
    assert said in capsys.readouterr().err
