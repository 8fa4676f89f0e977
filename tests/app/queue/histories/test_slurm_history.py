"""Folders of a real Slurm's history: read, replayed, and scored against what really happened."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from marey.app.queue.histories.history import read_history, read_policy
from marey.app.queue.what_if_folder import answer_what_if
from marey.cli import main
from marey.model.errors import InvalidInput, NotFound
from marey.queue.policy.what_if import LowFidelity

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


@pytest.mark.data
@pytest.mark.parametrize("history", ["easy", "strict"])
@pytest.mark.parametrize(
    ("backfill", "truth", "limit"), [("none", "strict", 0.06), ("conservative", "easy", 0.08)]
)
def test_without_slurm_conf_the_waits_come_as_near(
    data_dir: Path, tmp_path: Path, history: str, backfill: str, truth: str, limit: float
) -> None:
    recorded = data_dir / "jobs" / "slurm-policies"
    listing = (recorded / history / "scontrol-show-jobs.txt").read_text()
    # Printed twice, each job is still one.
    (tmp_path / "scontrol-show-jobs.txt").write_text(2 * listing)
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"order": "fifo", "backfill": backfill}))
    answer = answer_what_if(tmp_path, policy)
    real, _ = read_history(recorded / truth)
    told = np.array([row["wait_s"] for row in answer["jobs"]])
    assert answer["mean_wait_s"] == pytest.approx(real.wait_s.mean(), rel=limit)
    assert (np.abs(told - real.wait_s) <= 10.0).mean() >= 0.65
    assert answer["notes"][0].startswith("There is no slurm.conf")


def test_old_listings_name_the_gpus_of_a_node_under_gres(tmp_path: Path) -> None:
    text = "".join(JOB.format(id=i, limit="00:05:00") for i in range(1, 3))
    (tmp_path / "scontrol-show-jobs.txt").write_text(
        text.replace("TresPerNode=gres:gpu:4", "Gres=gpu:4")
    )
    assert read_history(tmp_path)[0].gpus.tolist() == [8, 8]


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
    with pytest.raises(NotFound, match="There is no"):
        read_history(tmp_path / "nowhere")
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


@pytest.mark.data
def test_every_policy_of_slurm_is_told_by_its_configuration(data_dir: Path) -> None:
    folder = data_dir / "jobs" / "slurm-policies"
    jobs, policy = read_history(folder / "easy")
    assert (policy.backfill, policy.order, policy.placement) == (
        "conservative", "fifo", "node_order",
    )  # fmt: skip
    assert (policy.interval_s, policy.window_s, policy.submit_delay_s) == (1, 3600, 0)
    assert read_history(folder / "strict")[1].backfill == "none"
    # The configuration of the other one is a policy too.
    assert read_policy(folder / "strict" / "slurm.conf").backfill == "none"
    assert 0.0 < jobs.lag_s < 2.0


CONFIG = """\
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=60,bf_max_job_test=50,bf_window=4320,bf_resolution=180
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory,CR_LLN
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=10000
PriorityWeightTRES=cpu=5,gres/gpu=500
PriorityMaxAge=1-0
PriorityFavorSmall=YES
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[1-2] CPUs=64 RealMemory=512000 Gres=gpu:a100:8  # two of them
NodeName=v1 CPUs=32 RealMemory=128000 Gres=gpu:v100:4
NodeName=login CPUs=8
PartitionName=DEFAULT MaxTime=1-0
PartitionName=train Nodes=n[1-2],v1 Default=YES
PartitionName=urgent Nodes=n1 PriorityTier=5
"""


def test_weights_hosts_and_partitions_come_from_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(CONFIG)
    text = JOB.format(id=1, limit="00:10:00").replace("NumNodes=2", "NumNodes=2 NumCPUs=16 "
        "Partition=urgent Account=nlp ReqTRES=cpu=16,mem=64G,node=2,gres/gpu:a100=8")  # fmt: skip
    (tmp_path / "scontrol-show-jobs.txt").write_text(text.replace("gres:gpu:4", "gres:gpu:a100:4"))
    jobs, policy = read_history(tmp_path)
    assert jobs.host_gpus.tolist() == [8, 8, 4]
    assert jobs.site.cpus.tolist() == [64, 64, 32]
    assert jobs.site.partitions[0] == ("train", "urgent")
    assert (jobs.cpus_per_host[0], jobs.memory_mb_per_host[0]) == (8, 32 * 1024)
    assert (jobs.gpu_model, jobs.projects, jobs.partition) == (("a100",), ("nlp",), ("urgent",))
    assert policy.weights == {"age": 1000.0, "fairshare": 10000.0, "gpus": 500.0}
    assert (policy.placement, policy.favor_small, policy.max_age_s) == (
        "least_allocated", True, 86400.0,
    )  # fmt: skip
    assert (policy.interval_s, policy.depth, policy.resolution_s) == (60, 50, 180)
    assert policy.preemption.mode == "requeue"
    assert [(rule.name, rule.tier) for rule in policy.partitions] == [("train", 0), ("urgent", 4)]


def test_requeues_and_clock_changes_are_replayed_but_not_scored(tmp_path: Path) -> None:
    again = JOB.format(id=1, limit="00:10:00").replace("TimeLimit", "Restarts=2 TimeLimit")
    early = JOB.format(id=2, limit="00:10:00").replace(
        "SubmitTime=2026-11-16T14:00:02", "SubmitTime=2026-11-16T14:59:02"
    )
    (tmp_path / "scontrol-show-jobs.txt").write_text(again + early)
    jobs, _ = read_history(tmp_path)
    assert jobs.start_ms.tolist() == [-1, -1]
    assert any("1 jobs were requeued" in note for note in jobs.notes)
    assert any("start before they were submitted" in note for note in jobs.notes)


def test_a_history_whose_starts_are_unknown_gives_no_answer_unless_asked(tmp_path: Path) -> None:
    again = JOB.format(id=1, limit="00:10:00").replace("TimeLimit", "Restarts=2 TimeLimit")
    (tmp_path / "scontrol-show-jobs.txt").write_text(again)
    policy = tmp_path / "policy.json"
    policy.write_text('{"backfill": "easy"}')
    with pytest.raises(LowFidelity, match="No job of the history has a recorded start"):
        answer_what_if(tmp_path, policy)
    answer = answer_what_if(tmp_path, policy, unchecked=True)
    assert answer["mean_wait_s"] == pytest.approx(0.0, abs=1.0)
    assert answer["current"]["error"] is None
    assert "Nothing was checked against recorded starts." in answer["notes"]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_jobs_that_never_ran_are_replayed_unchecked_without_an_error_to_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    waiting = [
        JOB.format(id=i, limit="00:01:00").replace("COMPLETED", "PENDING") for i in range(1, 3)
    ]
    (tmp_path / "scontrol-show-jobs.txt").write_text("".join(waiting))
    (tmp_path / "workload.json").write_text("[[0, 8, 5, 1], [1, 8, 33, 1], [2, 8, 7, 2]]")
    (tmp_path / "slurm.conf").write_text("NodeName=n[1-2] Gres=gpu:4\n")
    policy = tmp_path / "policy.json"
    policy.write_text('{"backfill": "easy"}')
    command = ["queue", "whatif", "--history", str(tmp_path), "--policy", str(policy)]
    assert main([*command, *form]) == 8
    assert "Traceback" not in capsys.readouterr().err
    assert main([*command, "--unchecked", *form]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["current"]["error"] is None if form else "error –" in printed
