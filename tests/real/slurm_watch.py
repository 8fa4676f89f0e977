"""What Marey shows of a real Slurm, beside what Slurm's own tools print at that moment."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from fastapi.testclient import TestClient

from marey.app.assembly import open_service
from marey.app.service import Service
from marey.app.settings.configuration import load_configuration
from marey.model.workloads import parse_state
from marey.sources.slurm.values import expand_hosts, expand_numbers
from tests.real.slurm_rig import REST_USER, Rig
from tests.signed_in import owner_client

_JOB = re.compile(r"^JobId=(\d+)(?: ArrayJobId=(\d+) ArrayTaskId=(\d+))?")
_HET = re.compile(r" HetJobId=(\d+) HetJobOffset=(\d+)")
_HELD = re.compile(r" Nodes=(\S+) CPU_IDs=\S+ Mem=\d+ GRES=gpu:[^ (]*\(IDX:([^)]*)\)")
# How often a reason that differs is looked at again.
LOOKS = 4
# In these the job is between two lives: squeue and the JSON may each tell either side.
BETWEEN = ("COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "STOPPED")


@dataclass
class Watch:
    """A service that watches the cluster, driven tick by tick and asked over HTTP."""

    rig: Rig
    service: Service
    client: TestClient

    def tick(self) -> None:
        """One collection, not sooner than the controller may be asked again."""
        time.sleep(1.02)
        self.service.collector.tick()

    def answered_tick(self) -> None:
        """A collection that the source answered: on a busy machine one may come too late."""
        before = self.source()["last_ms"]
        for _ in range(30):
            self.tick()
            if self.source()["last_ms"] != before:
                return
        raise AssertionError(f"thirty ticks without an answer: {self.source()}")

    def source(self) -> dict[str, Any]:
        """How the source is doing."""
        (state,) = self.service.sources()
        return msgspec.structs.asdict(state)

    def workloads(self) -> dict[str, dict[str, Any]]:
        """Every workload that the API tells of, by its name."""
        reply = self.client.get(
            "/api/v1/workloads", params={"limit": 10_000}, headers={"Accept": "application/json"}
        )
        assert reply.status_code == 200, reply.text
        return {row["workload"]: row for row in reply.json()["rows"]}

    def workload(self, name: int | str) -> dict[str, Any]:
        """Everything that the API tells of one."""
        reply = self.client.get(f"/api/v1/workloads/{name}")
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    def held(self) -> dict[str, set[str]]:
        """GPUs that each workload holds now, out of the store."""
        found: dict[str, set[str]] = {}
        for row in self.moment().allocations.to_pylist():
            found.setdefault(row["workload"], set()).add(row["gpu"])
        return found

    def hosts(self) -> dict[str, tuple[str, str]]:
        """State and reason of each host, out of the store."""
        rows = self.moment().hosts.to_pylist()
        return {row["host"]: (row["state"], row["reason"] or "") for row in rows}

    def moment(self) -> Any:
        """The store's present."""
        return self.service.store.moment("default", self.service.collector.counts.last_tick_ms)


@contextlib.contextmanager
def watching(rig: Rig, folder: Path, *, token_file: Path | None = None) -> Iterator[Watch]:
    """Marey as a site sets it up: by commands, or by slurmrestd where there is a token."""
    folder.mkdir(parents=True, exist_ok=True)
    rest = (
        f'rest_url = "{rig.rest_url}"\nrest_user = "{REST_USER}"\ntoken_file = "{token_file}"\n'
        if token_file
        else ""
    )
    settings = folder / "marey.toml"
    settings.write_text(
        f'[store]\npath = "{folder}/s.duckdb"\n[[source]]\nkind = "slurm"\n'
        f'least_interval = "1s"\ntimeout = "60s"\n{rest}'
    )
    service = open_service(load_configuration(settings))
    try:
        with owner_client(service) as client:
            yield Watch(rig, service, client)
    finally:
        service.stop()


def indices_printed(rig: Rig) -> dict[str, set[str]]:
    """The GPUs of each running job as ``scontrol show job`` prints them for people."""
    found: dict[str, set[str]] = {}
    for line in rig.call("scontrol", "show", "job", "--details", "--oneliner").splitlines():
        named, het = _JOB.match(line), _HET.search(line)
        if named is None or "JobState=RUNNING" not in line:
            continue
        job = f"{named[2]}_{named[3]}" if named[2] else named[1]
        job = f"{het[1]}+{het[2]}" if het else job
        found[job] = {
            f"{host}:{index}"
            for nodes, indices in _HELD.findall(line)
            for host in expand_hosts(nodes)
            for index in expand_numbers(indices)
        }
    return found


@dataclass
class Compared:
    """How much was compared, so that nothing compared is no success."""

    jobs: int = 0
    gpus: int = 0
    nodes: int = 0
    # Reasons that only agreed at a second look.
    doubted: int = 0

    def least(self) -> int:
        """Jobs or GPUs, of which fewer were compared."""
        return min(self.jobs, self.gpus)

    def __add__(self, other: Compared) -> Compared:
        return Compared(
            self.jobs + other.jobs,
            self.gpus + other.gpus,
            self.nodes + other.nodes,
            self.doubted + other.doubted,
        )


def compare(watch: Watch) -> Compared:
    """Let a tick pass and hold everything that did not change meanwhile against Slurm's words."""
    rig, done = watch.rig, Compared()
    doubtful: list[str] = []
    rows, gpus, nodes = rig.squeue(), indices_printed(rig), nodes_printed(rig)
    watch.answered_tick()
    source = watch.source()
    assert (source["state"], source["error"]) == ("fresh", ""), source
    after = {row["job"]: row for row in rig.squeue()}
    gpus_after, nodes_after = indices_printed(rig), nodes_printed(rig)
    shown, held, hosts = watch.workloads(), watch.held(), watch.hosts()
    for row in rows:
        if after.get(row["job"]) == row and row["state"] not in BETWEEN:
            check_job(shown.get(row["job"]), row)
            done.jobs += 1
            if not same_reason(shown[row["job"]], row["reason"]):
                doubtful.append(row["job"])
    done.doubted = len(doubtful)
    named = {row["job"] for row in rows} | after.keys()
    live = {name for name, found in shown.items() if found["state"] in ("pending", "running")}
    assert live <= named, f"shown but unknown to squeue: {live - named}"
    for job, indices in gpus.items():
        if gpus_after.get(job) == indices and indices:
            assert held.get(job) == indices, (job, held.get(job), indices)
            done.gpus += len(indices)
    for node, state in nodes.items():
        if nodes_after.get(node) == state:
            assert hosts[node][0] == host_state(state), (node, hosts[node], state)
            done.nodes += 1
    for job in doubtful:
        agree_soon(watch, job)
    return done


def check_job(shown: dict[str, Any] | None, row: dict[str, str]) -> None:
    """One workload against its row of squeue."""
    assert shown is not None, row
    assert shown["state"] == parse_state(row["state"]).value, (shown, row)
    for key in ("user", "name", "partition", "qos"):
        assert shown[key] == row[key], (key, shown, row)


def same_reason(shown: dict[str, Any], printed: str) -> bool:
    """Whether a waiting workload's reason is the one that squeue prints."""
    if shown["state"] != "pending" or shown["attributes"].get("reason_text") == printed:
        # squeue prints the controller's sentence in the reason's place where there is one.
        return True
    # It adds an explanation to some. A task just split off its array has no reason yet.
    told = printed.split(",")[0]
    return bool(shown["reason"] == ("" if told == "None" else told))


def agree_soon(watch: Watch, job: str) -> None:
    """Look again at a job whose reason was another one.

    Where two reasons hold (held, and its dependency failed; begins later, and its array is at its
    limit) the controller goes back and forth between them from one pass to the next, and so
    between two prints that both say the one. What Marey got wrong would stay wrong.
    """
    looks = []
    for _ in range(LOOKS):
        printed = [watch.rig.reason(job)]
        watch.answered_tick()
        printed.append(watch.rig.reason(job))
        shown = watch.workloads()[job]
        if any(same_reason(shown, text) for text in printed):
            return
        looks.append((shown["reason"], printed))
    raise AssertionError((job, looks))


def nodes_printed(rig: Rig) -> dict[str, str]:
    """Each node's state as sinfo prints it."""
    told = rig.call("sinfo", "--noheader", "--Node", "--format=%N %T")
    return dict(line.split() for line in told.splitlines())


def host_state(printed: str) -> str:
    """Marey's word for a state that sinfo prints; a star is a node that does not respond."""
    if printed.endswith("*") or printed.startswith(("down", "inval")):
        return "down"
    if printed.startswith("unk"):
        return "unknown"
    return "drained" if printed.startswith(("drain", "fail")) else "up"
