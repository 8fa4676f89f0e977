"""What the diagnosis says of real JUWELS Booster jobs can be checked against their job reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from marey.app.diagnosis.diagnosis_query import AskDiagnosis
from marey.app.queries.server_client import ask
from tests.app.history.test_imports_juwels import PUBLISHED, imported


@pytest.mark.data
@pytest.mark.parametrize("job", ["8108356", "8402497", "9438058"])
def test_every_mean_of_the_diagnosis_is_the_job_reports(
    data_dir: Path, tmp_path: Path, job: str
) -> None:
    store, report = imported(data_dir, tmp_path, job)
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
