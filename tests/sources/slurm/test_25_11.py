"""Slurm 25.11, of which nothing is recorded here.

Written from the documentation: its slurmrestd speaks v0.0.44, whose jobs and nodes have the shape
of v0.0.43 (numbers and times wrapped, states as lists, exit codes as objects) and further fields.
"""

from __future__ import annotations

import json
import socket
from typing import Any

from marey.model.inventory import HostState
from marey.model.workloads import WorkloadState
from marey.sources.slurm.history import list_ended_jobs, parse_history
from marey.sources.slurm.rest import SlurmRestClient
from marey.sources.slurm.slurm_source import SlurmRules, SlurmSource
from tests.sources.exporters import answer, exporter

NOW_MS = 1_794_771_700_000
BEGIN_S = 1_794_771_000


def number(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def job(job_id: int, state: str, **given: Any) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "name": "train",
        "user_name": "ada",
        "account": "nlp",
        "partition": "gpu",
        "qos": "normal",
        "job_state": [state],
        "state_reason": "None",
        "priority": number(4294),
        "submit_time": number(1_794_771_000),
        "eligible_time": number(1_794_771_000),
        "start_time": number(1_794_771_100),
        "end_time": number(None),
        "time_limit": number(60),
        "node_count": number(1),
        "tres_req_str": "cpu=8,mem=64G,node=1,billing=8,gres/gpu=2,gres/gpu:h200=2",
        "tres_per_node": "gres/gpu:h200:2",
        "array_job_id": number(0),
        "array_task_id": number(None),
        "het_job_id": number(0),
        "het_job_offset": number(None),
        "gres_detail": [],
        "nodes": "",
        "restart_cnt": 0,
        "exit_code": {"status": ["SUCCESS"], "return_code": number(0), "signal": {}},
        # What later versions add is nobody's trouble.
        "stdout_expanded": "/home/ada/slurm.out",
        "a_field_of_tomorrow": [{"nested": number(1)}],
        **given,
    }


NODES = [
    {
        "name": f"gpu{n}",
        "hostname": f"gpu{n}",
        "address": f"10.0.0.{n}",
        "state": state,
        "reason": reason,
        "gres": "gpu:h200:4(S:0-1)",
        "gres_used": "gpu:h200:0(IDX:N/A)",
        "cpus": 64,
        "real_memory": 512_000,
        "partitions": ["gpu"],
        "version": "25.11.1",
    }
    for n, state, reason in ((1, ["MIXED"], ""), (2, ["IDLE", "DRAIN"], "XID 79"))
]
JOBS = [
    job(11, "RUNNING", nodes="gpu1", gres_detail=["gpu:h200:2(IDX:1,3)"]),
    job(12, "PENDING", state_reason="Resources", start_time=number(None)),
    job(13, "FAILED", end_time=number(1_794_771_200), nodes="gpu1",
        exit_code={"status": ["ERROR"], "return_code": number(3), "signal": {}}),
]  # fmt: skip
META = {"plugin": {"data_parser": "data_parser/v0.0.44"}, "slurm": {"release": "25.11.1"}}
ANSWERS: dict[str, dict[str, Any]] = {
    "ping": {"pings": []},
    "nodes": {"nodes": NODES},
    "jobs": {"jobs": JOBS},
    "partitions": {"partitions": [{"name": "gpu", "maximums": {"time": number(1440)}}]},
    "reservations": {"reservations": []},
    "shares": {"shares": {"shares": [], "total_shares": 0}},
    "diag": {"statistics": {"req_time": number(NOW_MS // 1000)}},
}


def test_a_cluster_of_25_11_is_read_through_its_own_version() -> None:
    asked: list[str] = []

    def behave(connection: socket.socket, path: str) -> None:
        asked.append(path)
        told = ANSWERS[path.rpartition("/")[2]] | {"meta": META, "errors": [], "warnings": []}
        connection.sendall(answer(json.dumps(told).encode()))

    with exporter(behave) as place:
        rest = SlurmRestClient(f"http://{place}", "marey", "token")
        source = SlurmSource("slurm", rest, SlurmRules("default"))
        (seen,) = source.poll(NOW_MS)
        details = source.details()
        source.close()
    assert {path.split("/")[2] for path in asked} == {"v0.0.44"}
    states = {status.workload: (status.state, status.reason) for status in seen.statuses}
    assert states == {
        "11": (WorkloadState.RUNNING, ""),
        "12": (WorkloadState.PENDING, "Resources"),
        "13": (WorkloadState.FAILED, ""),
    }
    assert [a.gpu for a in seen.allocations] == ["gpu1:1", "gpu1:3"]
    work = {w.workload: w for w in seen.workloads}
    assert (work["11"].gpus_requested, work["11"].gpu_model) == (2, "h200")
    assert work["13"].exit_code == 3
    assert [(h.host, h.state, h.reason) for h in seen.host_states] == [
        ("gpu1", HostState.UP, ""),
        ("gpu2", HostState.DRAINED, "XID 79"),
    ]
    assert len(seen.gpus) == 8
    assert details["version"] == "25.11.1"


def test_accounting_of_25_11_is_read() -> None:
    body = {
        "meta": META,
        "jobs": [
            {
                "job_id": 13,
                "name": "train",
                "user": "ada",
                "association": {"account": "nlp", "cluster": "c", "user": "ada"},
                "partition": "gpu",
                "state": {"current": ["FAILED"], "reason": "None"},
                "time": {"submission": BEGIN_S, "eligible": BEGIN_S, "start": BEGIN_S + 10,
                         "end": BEGIN_S + 20, "limit": number(60)},
                "exit_code": {"status": ["ERROR"], "return_code": number(3), "signal": {}},
                "nodes": "gpu1",
                "allocation_nodes": 1,
                "tres": {"allocated": [{"type": "gres", "name": "gpu", "id": 1001, "count": 2},
                                       {"type": "gres", "name": "gpu:h200", "id": 1002,
                                        "count": 2}]},
                "a_field_of_tomorrow": {},
            }
        ],
    }  # fmt: skip
    (seen,) = list_ended_jobs(parse_history(json.dumps(body).encode()))
    work = seen.workload
    assert (work.workload, seen.status.state) == ("13", WorkloadState.FAILED)
    told = [work.submit_ms, work.start_ms, work.end_ms]
    assert told == [1000 * (BEGIN_S + after_s) for after_s in (0, 10, 20)]
    assert (work.gpus_requested, work.gpu_model, work.exit_code) == (2, "h200", 3)
