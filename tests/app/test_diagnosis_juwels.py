"""What the diagnosis says of real JUWELS Booster jobs can be checked against their job reports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from marey.app.asking import ask
from marey.app.diagnosing import AskDiagnosis
from marey.cli import main
from tests.app.test_importing_juwels import PUBLISHED, ROOT


@pytest.mark.data
@pytest.mark.parametrize("job", ["8108356", "8402497", "9438058"])
def test_every_mean_of_the_diagnosis_is_the_job_reports(
    data_dir: Path, tmp_path: Path, job: str
) -> None:
    folder = data_dir / "metrics" / "juwels" / job
    script = ROOT / "scripts" / "juwels_to_csv.py"
    subprocess.run([sys.executable, str(script), str(folder), str(tmp_path)], check=True)
    store = tmp_path / "j.duckdb"
    files = ["--samples", tmp_path / "samples.csv", "--workloads", tmp_path / "workloads.csv"]
    assert main(["import", *map(str, files), "--store", str(store)]) == 0

    report = json.loads(next(folder.glob("jobreport_*.json")).read_text())["gpu"]
    found = ask(store, AskDiagnosis(job))
    means = {row["metric"]: row["mean"] for row in found["metrics"]}
    for metric, (key, factor) in PUBLISHED.items():
        assert means[metric] == pytest.approx(report[key] * factor, rel=2e-4, abs=5e-4), metric
    assert found["findings"], "there are enough samples for a verdict"
    limits = {row["metric"]: (row["min"], row["max"]) for row in found["metrics"]}
    for finding in found["findings"]:
        assert set(finding["gpus"]) <= set(found["workload"]["gpus"])
        for entry in finding["evidence"]:
            if entry["what"] == "mean utilization":
                assert limits["util"][0] <= entry["value"] <= limits["util"][1]
