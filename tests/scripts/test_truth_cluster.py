"""``docs/truth.md`` of clusters: one command makes it, and nothing in it is wrong."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def truth() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "truth_cluster", ROOT / "scripts" / "truth_cluster.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["truth_cluster"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.data
def test_no_text_of_a_scheduler_or_an_exporter_is_read_wrongly(
    truth: ModuleType, data_dir: Path
) -> None:
    tried = [*truth.try_scheduler_texts(data_dir), *truth.try_exporter_texts(data_dir)]
    known = truth.list_known_paths()
    listed = [row for row in tried if row.path in known]
    assert len(listed) >= 60
    assert [row for row in listed if row.outcome == "WRONG"] == []
    assert sum(row.outcome == "refused" for row in listed) <= len(listed) / 10
    # What was added to the data since is tried and told, and no reason to fail.
    for row in tried:
        if row.path not in known:
            print("not in docs/truth.md:", row.row())


def test_a_recording_that_is_new_does_not_fail_the_others(
    truth: ModuleType, tmp_path: Path
) -> None:
    """The shared data grow; whatever stands in a new file, the rest is tried."""
    for folder, name, text in (
        ("slurm", "odd.json", '{"jobs": [{"job_id": {}, "job_state": ["PLUTO"]}]}'),
        ("slurm", "cut.json", '{"jobs": ['),
        ("exposition", "odd.prom", 'DCGM_FI_DEV_GPU_UTIL{gpu="x",} one\n'),
        ("exposition", "bytes.prom", "\x00{\ufffd}"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    tried = [*truth.try_scheduler_texts(tmp_path), *truth.try_exporter_texts(tmp_path)]
    assert [row.path for row in tried if row.path in truth.list_known_paths()] == []


def test_a_text_that_is_read_wrongly_would_be_seen(truth: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "exposition"
    folder.mkdir()
    # A GPU by a label that is counted apart, in a series that no catalogue names.
    (folder / "one.prom").write_text('DCGM_FI_DEV_NOBODY{gpu="0",Hostname="a"} 1\n')
    (row,) = truth.try_exporter_texts(tmp_path)
    assert row.outcome == "WRONG"


def test_only_what_is_between_the_markers_is_replaced(truth: ModuleType) -> None:
    page = f"# Title\n\nabove\n\n{truth.BEGIN}\nold\n{truth.END}\n\nbelow\n"
    made = truth.put_between_markers(page, "new")
    assert made == page.replace("old", "new")
    assert truth.put_between_markers("# Title\n", "new").endswith(f"new\n{truth.END}\n")
