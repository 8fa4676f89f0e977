"""A snapshot of a large Slurm cluster: our reader against json.loads and a plain Python loop."""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

from bench.report import Results, timed
from marey.sources.slurm.slurm_json import parse_document
from marey.sources.slurm.snapshot import Snapshot, SnapshotReader

SHARE = float(os.environ.get("MAREY_BENCH_SHARE", "1"))
NODES, JOBS = int(5_000 * SHARE), int(50_000 * SHARE)


def _set(number: float) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number}


def _job(at: int) -> dict[str, Any]:
    """A job as 25.05 writes it, with the parts that nobody needs and that make it large.

    No two jobs write those numbers alike, which would help a reader that remembers the last job.
    """
    running = at < NODES
    cores = [{"index": n, "status": ["ALLOCATED"]} for n in range(16)]
    where = f"gpu{at % NODES:05d}"
    return {
        **{f"unused_{n}": _set(at * 40 + n) for n in range(40)},
        **{f"empty_{n}": "" for n in range(40)},
        "job_id": at, "array_job_id": _set(0), "array_task_id": {"set": False, "number": 0},
        "name": f"train-{at}", "user_name": f"user{at % 300}", "account": "nlp",
        "partition": "train", "qos": "normal", "job_state": ["RUNNING" if running else "PENDING"],
        "state_reason": "None" if running else "Priority", "priority": _set(at),
        "submit_time": _set(1_762_789_125), "eligible_time": _set(1_762_789_125),
        "start_time": _set(1_762_789_125), "time_limit": _set(600), "node_count": _set(1),
        "nodes": where if running else "", "tres_per_node": "gres/gpu:h100:8",
        "tres_req_str": "cpu=64,mem=512G,node=1,billing=64,gres/gpu=8,gres/gpu:h100=8",
        "gres_detail": ["gpu:h100:8(IDX:0-7)"] if running else [],
        "comment": '{"experiment": "e1", "project": "p"}' if at % 3 == 0 else "",
        "job_resources": {"nodes": {"allocation": [{"name": where, "sockets": [
            {"index": s, "cores": cores} for s in range(2)]}]}} if running else None,
    }  # fmt: skip


def _node(at: int) -> dict[str, Any]:
    return {
        **{f"unused_{n}": _set(n) for n in range(20)},
        "name": f"gpu{at:05d}", "state": ["MIXED"], "gres": "gpu:h100:8", "reason": "",
        "partitions": ["train"], "cpus": 64, "real_memory": 515_000,
    }  # fmt: skip


def _plain(nodes: bytes, jobs: bytes) -> list[Any]:
    """What a straightforward script does: the same facts, GPU by GPU, without our checks."""
    found: list[Any] = []
    for node in json.loads(nodes)["nodes"]:
        found.append((node["name"], node["state"], node["partitions"], node["cpus"]))
        found += [(node["name"], n, "h100") for n in range(int(node["gres"].split(":")[2]))]
    for job in json.loads(jobs)["jobs"]:
        times = [job[k]["number"] * 1000 for k in ("submit_time", "eligible_time", "start_time")]
        tres = dict(part.split("=") for part in job["tres_req_str"].split(","))
        comment = json.loads(job["comment"]) if job["comment"] else {}
        who = (job["job_id"], job["name"], job["user_name"], job["account"], comment)
        found.append(
            (*who, job["job_state"][0], job["priority"]["number"], tres["gres/gpu"], times)
        )
        for detail in job["gres_detail"]:
            first, last = detail.split("IDX:")[1].rstrip(")").split("-")
            found += [(job["job_id"], job["nodes"], n) for n in range(int(first), int(last) + 1)]
    return found


def _later(at: int) -> dict[str, Any]:
    """The same job a poll later: one in twenty has changed, every waiting one's priority has."""
    job = _job(at)
    if at >= NODES:
        job["priority"] = _set(at + 1)
    if at % 20 == 0:
        job["state_reason"] = "Resources"
    return job


def _document(what: str, records: list[dict[str, Any]]) -> bytes:
    return json.dumps({what: records, "errors": []}).encode()


def main() -> int:
    """5,000 nodes and 50,000 jobs (``MAREY_BENCH_SHARE=0.1`` for a tenth)."""
    results = Results()
    nodes = _document("nodes", [_node(at) for at in range(NODES)])
    jobs = _document("jobs", [_job(at) for at in range(JOBS)])
    later = _document("jobs", [_later(at) for at in range(JOBS)])
    following = SnapshotReader("c")
    turns = itertools.cycle((jobs, later))

    def read(reader: SnapshotReader, body: bytes) -> None:
        snapshot = Snapshot(
            parse_document(nodes, "nodes").nodes or [], parse_document(body, "jobs").jobs or []
        )
        reader.observe(snapshot, 1_762_789_200_000)

    first = timed(lambda: read(SnapshotReader("c"), jobs), repeat=5)
    next_ones = timed(lambda: read(following, next(turns)), repeat=5)
    rival = timed(lambda: _plain(nodes, jobs), repeat=4, warm=False)
    for what, mine in (("the first snapshot", first), ("every later snapshot", next_ones)):
        results.against(
            f"{what} read and joined ({mine.cpu_s:.2f} s CPU)",
            ratio=rival.cpu_s / mine.cpu_s,
            target=3,
            rival=f"faster than json.loads and a loop ({rival.cpu_s:.2f} s CPU)",
            size=f"{NODES} nodes, {JOBS} jobs, {(len(nodes) + len(jobs)) / 1e6:.0f} MB",
            at_10x="linear in the jobs",
        )
    return results.missed
