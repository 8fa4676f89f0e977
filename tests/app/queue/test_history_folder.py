"""Folders of a real Slurm's history: read, replayed, and scored against what really happened."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from marey.app.queue.histories.history import read_history
from marey.app.queue.what_if_folder import answer_what_if
from marey.model.errors import InvalidInput, NotFound

JOB = (
    "JobId={id} JobName=j{id} UserId=ada(1) JobState=COMPLETED TimeLimit={limit} "
    "SubmitTime=2026-11-16T14:00:0{id} StartTime=2026-11-16T14:00:0{id} "
    "EndTime=2026-11-16T14:01:00 Scheduler=Main NodeList=n[1-2] NumNodes=2 TresPerNode=gres:gpu:4\n"
)


@pytest.mark.data
@pytest.mark.parametrize(
    ("history", "backfill", "truth", "limit"),
    [
        ("easy", "none", "strict", 0.06),
        ("strict", "none", "strict", 0.06),
        ("strict", "conservative", "easy", 0.08),
        ("easy", "conservative", "easy", 0.08),
    ],
)
def test_the_mean_wait_under_another_policy_comes_near_a_real_slurms(
    data_dir: Path, tmp_path: Path, history: str, backfill: str, truth: str, limit: float
) -> None:
    folder = data_dir / "jobs" / "slurm-policies"
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"order": "fifo", "backfill": backfill}))
    answer = answer_what_if(folder / history, policy)
    real, _ = read_history(folder / truth)
    told = np.array([row["wait_s"] for row in answer["jobs"]])
    assert answer["mean_wait_s"] == pytest.approx(real.wait_s.mean(), rel=limit)
    assert (np.abs(told - real.wait_s) <= 10.0).mean() >= 0.65


def test_a_history_without_configuration_tells_its_hosts_and_its_policy(tmp_path: Path) -> None:
    text = "".join(JOB.format(id=i, limit="UNLIMITED") for i in range(1, 3))
    (tmp_path / "scontrol-show-jobs.txt").write_text(text)
    jobs, policy = read_history(tmp_path)
    assert policy.backfill == "none"
    assert jobs.host_gpus.tolist() == [8, 8]
    assert jobs.gpus.tolist() == [8, 8]
    assert jobs.limit_ms[0] == 365 * 86400 * 1000


def test_a_folder_without_jobs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"scontrol-show-jobs\.txt"):
        read_history(tmp_path)
    (tmp_path / "scontrol-show-jobs.txt").write_text("slurm_load_jobs error\n")
    with pytest.raises(InvalidInput, match="holds no job"):
        read_history(tmp_path)


def test_requeued_jobs_that_never_ran_take_their_seconds_from_the_workload(tmp_path: Path) -> None:
    waiting = JOB.format(id=1, limit="00:01:00").replace("COMPLETED", "PENDING")
    (tmp_path / "scontrol-show-jobs.txt").write_text(waiting + JOB.format(id=2, limit="00:02:00"))
    (tmp_path / "workload.json").write_text("[[0, 8, 5, 1], [1, 8, 33, 1], [2, 8, 7, 2]]")
    jobs, _ = read_history(tmp_path)
    assert jobs.run_ms.tolist() == [33_000, 58_000]
    assert jobs.start_ms[0] == -1
