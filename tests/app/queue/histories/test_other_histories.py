"""sacct listings and public traces as histories: read, replayed, or refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from marey.app.queue.histories.history import read_history
from marey.app.queue.what_if_folder import answer_what_if
from marey.model.errors import InvalidInput, NotFound
from marey.queue.policy.what_if import LowFidelity

SACCT = """\
JobID|User|Account|Partition|Submit|Eligible|Start|End|State|Timelimit|NNodes|ReqCPUS|ReqTRES|NodeList
7|ada|nlp|train|2026-11-16T14:00:00|2026-11-16T14:00:00|2026-11-16T14:00:01|2026-11-16T14:10:01|COMPLETED|01:00:00|2|8|cpu=8,mem=64G,gres/gpu=8|n[1-2]
7.batch||nlp||2026-11-16T14:00:00|2026-11-16T14:00:00|2026-11-16T14:00:01|2026-11-16T14:10:01|COMPLETED||1|8||n1
8_[3-9]|bob|cv|train|2026-11-16T14:00:02|Unknown|Unknown|Unknown|PENDING|UNLIMITED|1|1|cpu=1,gres/gpu=1|None assigned
9|bob|cv|train|2026-11-16T14:00:03|2026-11-16T14:05:00|2026-11-16T14:10:02|2026-11-16T14:11:02|TIMEOUT|1-00:00:00|1|4|cpu=4,gres/gpu:a100=4|n1
10|bob|cv|train|2026-11-16T14:00:04|2026-11-16T14:00:04|None|2026-11-16T14:01:02|CANCELLED|UNLIMITED|1|4|cpu=4,gres/gpu=4|None assigned
"""  # noqa: E501


def test_a_sacct_listing_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT)
    jobs, policy = read_history(tmp_path)
    assert read_history(path)[0].ids == jobs.ids == ("7", "9")
    assert jobs.gpus.tolist() == [8, 4]
    assert (jobs.hosts.tolist(), jobs.host_gpus.tolist()) == ([2, 1], [4, 4])
    # A dependency is no wait of the policy: the second stood in line from 14:05 on.
    assert jobs.wait_s.tolist() == [1.0, 302.0]
    assert jobs.limit_ms.tolist() == [3_600_000, 86_400_000]
    assert (policy.backfill, jobs.projects) == ("conservative", ("cv", "nlp"))
    assert jobs.notes[1].startswith("2 jobs that have not run")


def test_a_listing_without_its_columns_is_refused_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text("JobID|User|State\n1|ada|COMPLETED\n")
    with pytest.raises(InvalidInput, match="no column Submit, Start, End, Timelimit, ReqTRES"):
        read_history(tmp_path)


NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,8000,1000,1,T4\nn2,8000,1000,0,\n"
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
a,1000,10,1,500,,LS,Succeeded,0,100,0
b,1000,10,1,500,T4|V100,BE,Succeeded,5,105,5
c,1000,10,1,500,,BE,Succeeded,6,200,100
d,1000,10,0,0,,BE,Succeeded,6,200,100
e,1000,10,1,1000,,BE,Pending,6,,
"""


def test_alibabas_pods_share_gpus(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    jobs, _ = read_history(tmp_path)
    assert jobs.ids == ("a", "b", "c")
    assert jobs.gpu_share.tolist() == [500, 500, 500]
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"sharing": False, "start_lag_s": 0}))
    answer = answer_what_if(tmp_path, policy)
    # Recorded and replayed: the third waits for the first; with whole GPUs all stand in a row.
    assert answer["current"]["error"] == pytest.approx(0.0, abs=0.1)
    assert [row["wait_s"] for row in answer["jobs"]] == [0.0, 95.0, 194.0]


@pytest.mark.data
def test_alibabas_waits_are_no_queue_and_so_refused(data_dir: Path, tmp_path: Path) -> None:
    """Its GPUs were never full: pods that waited did not wait for room, and no policy tells why."""
    policy = tmp_path / "policy.json"
    policy.write_text('{"placement": "fgd"}')
    folder = data_dir / "jobs" / "alibaba-gpu-v2023"
    with pytest.raises(LowFidelity, match="misses the recorded mean wait by -100 %"):
        answer_what_if(folder, policy)
    answer = answer_what_if(folder, policy, unchecked=True)
    assert answer["current"]["scored_jobs"] > 6000
    assert answer["mean_wait_s"] == 0.0


def test_a_helios_log_is_read_and_its_sums_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "cluster_log.csv"
    log.write_text(
        "job_id,user,gpu_num,node_num,state,submit_time,start_time,end_time,duration,vc\n"
        "1,u1,8,1,COMPLETED,2020-05-01 00:00:00,2020-05-01 00:00:00,2020-05-01 00:10:00,600,vcA\n"
        "2,u2,16,2,COMPLETED,2020-05-01 00:01:00,2020-05-01 00:10:00,2020-05-01 00:11:00,60,vcB\n"
        "3,u2,0,1,COMPLETED,2020-05-01 00:01:00,2020-05-01 00:10:00,2020-05-01 00:11:00,60,vcB\n"
    )
    jobs, _ = read_history(log)
    assert (jobs.gpus.tolist(), jobs.hosts.tolist()) == ([8, 16], [1, 2])
    assert jobs.wait_s.tolist() == [0.0, 540.0]
    policy = tmp_path / "policy.json"
    policy.write_text('{"hosts": [{"count": 2, "gpus": 8}], "start_lag_s": 0}')
    assert answer_what_if(log, policy)["mean_wait_s"] == pytest.approx(270.0, abs=1.0)
    sums = tmp_path / "vcA.csv"
    sums.write_text("time,total_job_num,running_job_num,running_gpujob_num\n2020-05-01,1,1,1\n")
    with pytest.raises(InvalidInput, match="sums over jobs"):
        read_history(sums)


def test_philly_needs_hosts_and_tells_that_nothing_was_checked(tmp_path: Path) -> None:
    trace, policy = tmp_path / "philly.csv", tmp_path / "policy.json"
    trace.write_text(
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:00:00,60.0,8,480,c\n2017-10-09 06:59:00,600.0,1,600,c\n"
    )
    policy.write_text("{}")
    with pytest.raises(InvalidInput, match="no hosts with GPUs"):
        answer_what_if(trace, policy, unchecked=True)
    policy.write_text('{"hosts": [{"count": 1, "gpus": 8}], "start_lag_s": 0}')
    answer = answer_what_if(trace, policy, unchecked=True)
    assert [row["wait_s"] for row in answer["jobs"]] == [0.0, 540.0]
    assert answer["notes"][-1].startswith("Nothing was checked")


def test_what_holds_no_history_is_refused_with_what_could(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(NotFound, match="sacct --parsable2"):
        read_history(tmp_path)
    (tmp_path / "b.csv").write_bytes(b"")
    with pytest.raises(InvalidInput, match="no CSV table"):
        read_history(tmp_path)


def test_a_long_listing_is_read_once(tmp_path: Path) -> None:
    """An array of many tasks: one line each, all submitted together."""
    line = (
        "JobId={i} ArrayJobId=1 ArrayTaskId={i} JobName=a UserId=ada(1) JobState=COMPLETED "
        "TimeLimit=00:01:00 SubmitTime=2026-11-16T14:00:00 StartTime=2026-11-16T14:00:00 "
        "EndTime=2026-11-16T14:00:30 NodeList=n1 NumNodes=1 TresPerNode=gres:gpu:1\n"
    )
    (tmp_path / "scontrol-show-jobs.txt").write_text("".join(line.format(i=i) for i in range(2000)))
    jobs, _ = read_history(tmp_path)
    assert len(jobs) == 2000
    assert np.unique(jobs.submit_ms).size == 1
