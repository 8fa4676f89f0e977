"""Real jobs of JUWELS Booster come back from the store with their published averages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from marey.cli import main
from marey.model.protocols import Selection
from marey.store.embedded.embedded_store import open_store

ROOT = Path(__file__).resolve().parents[3]
# Metric → (key of the job report, factor to our unit, resolution's share of the error).
PUBLISHED = {
    "util": ("gpu_usage_avg", 1.0),
    "power": ("gpu_pu_avg", 1e-3),
    "mem_used": ("gpu_memu_avg", 2.0**-20),
    "temp": ("gpu_temp_avg", 1.0),
    "mem_copy": ("gpu_memur_avg", 1.0),
}


def imported(data_dir: Path, tmp_path: Path, job: str) -> tuple[Path, dict[str, float]]:
    """A store with the job's history, and what its published report says of its GPUs."""
    folder = data_dir / "metrics" / "juwels" / job
    script = ROOT / "scripts" / "juwels_to_csv.py"
    subprocess.run([sys.executable, str(script), str(folder), str(tmp_path)], check=True)
    store = tmp_path / "j.duckdb"
    files = ["--samples", tmp_path / "samples.csv", "--workloads", tmp_path / "workloads.csv"]
    assert main(["import", *map(str, files), "--store", str(store)]) == 0
    return store, json.loads(next(folder.glob("jobreport_*.json")).read_text())["gpu"]


@pytest.mark.data
@pytest.mark.parametrize("job", ["8108356", "8402497", "9438058"])
def test_published_averages_come_back(data_dir: Path, tmp_path: Path, job: str) -> None:
    store, report = imported(data_dir, tmp_path, job)
    with open_store(store) as opened:
        selection = Selection(tuple(PUBLISHED), 0, 2**60, workload=job)
        rows = opened.statistics(selection).table.to_pylist()
    for metric, (key, factor) in PUBLISHED.items():
        own = [row for row in rows if row["metric"] == metric]
        mean = sum(r["mean"] * r["count"] for r in own) / sum(r["count"] for r in own)
        # The text files carry three decimals of a GiB, so memory is exact to 1 MiB only.
        assert mean == pytest.approx(report[key] * factor, rel=2e-4), metric
