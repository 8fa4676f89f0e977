"""Everything the controller says at one moment, as one complete observation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from marey.model.inventory import Gpu, Host, HostState, HostStatus, Partition
from marey.model.observation import Observation
from marey.model.system.garbage import collecting_paused
from marey.sources.slurm.factors import Factors
from marey.sources.slurm.jobs import PENDING, RUNNING, SeenJob, seen_jobs, set_priority
from marey.sources.slurm.reservations import Calendar, HostReservation
from marey.sources.slurm.slurm_json import Job, Node
from marey.sources.slurm.slurm_nodes import list_gpus, make_host, read_status
from marey.sources.slurm.values import parse_text


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was asked: nodes and jobs as documents, the rest as the model has it.

    ``ahead_ms`` is how far Slurm's clock is ahead of ours; job times are put right by it.
    """

    nodes: Sequence[Node] = ()
    jobs: Sequence[Job] = ()
    partitions: Sequence[Partition] = ()
    reservations: Sequence[HostReservation] = ()
    factors: Mapping[int, Factors] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    ahead_ms: int = 0


ALONE = "measured, but Slurm does not know it"
_Inventory = tuple[tuple[Host, ...], tuple[Gpu, ...], tuple[HostStatus, ...]]
_NO_FACTORS: Factors = {}


class _Known(msgspec.Struct, gc=False):
    """A job's record at the last poll and what it meant."""

    job: Job
    factors: Factors
    seen: list[SeenJob]


@dataclass(slots=True)
class SnapshotReader:
    """Turns snapshots into observations; a job that has ended is reported once, not at every poll.

    With ``gpu_only`` (the default) nodes without GPUs, and jobs that ask for none, are left out.
    """

    cluster: str
    gpu_only: bool = True
    _calendar: Calendar = field(default_factory=Calendar)
    _ended: set[str] = field(default_factory=set)
    # Most of a cluster is as it was at the last poll: what a record meant then, it means now.
    _nodes: list[Node] = field(default_factory=list)
    _measured: list[Gpu] = field(default_factory=list)
    _inventory: _Inventory = ((), (), ())
    _jobs: dict[int, _Known] = field(default_factory=dict)
    _ahead_ms: int = 0
    _live: dict[str, SeenJob] = field(default_factory=dict)
    _vanished: dict[str, SeenJob] = field(default_factory=dict)

    def observe(self, snapshot: Snapshot, now_ms: int, measured: Iterable[Gpu] = ()) -> Observation:
        """Return the whole cluster at this moment: what it does not name has gone.

        GPUs that others measure lend Slurm's their UUID and model; on hosts that Slurm does not
        know they are reported too, as unknown.
        """
        with collecting_paused():
            return self._observe(snapshot, now_ms, measured)

    def _observe(self, snapshot: Snapshot, now_ms: int, measured: Iterable[Gpu]) -> Observation:
        hosts, gpus, states = self._read_nodes(list(snapshot.nodes), list(measured))
        events = self._calendar.update(snapshot.reservations, now_ms)
        news = self._drop_old_ends(self._list_wanted(self._read_jobs(snapshot)))
        return Observation(
            now_ms,
            self.cluster,
            hosts=hosts,
            gpus=gpus,
            partitions=tuple(snapshot.partitions),
            host_states=add_reservations(states, self._calendar.reasons(now_ms)),
            workloads=tuple([job.workload for job in news]),
            statuses=tuple([job.status for job in news]),
            allocations=tuple([a for job in news for a in job.allocations]),
            events=tuple(events),
            shares=dict(snapshot.shares) or None,
            complete=True,
        )

    def take_vanished(self) -> dict[str, tuple[int, SeenJob]]:
        """Return jobs that were not over when they were last seen and that Slurm no
        longer names.
        """
        taken, self._vanished = self._vanished, {}
        return {name: (_get_job_id(seen), seen) for name, seen in taken.items()}

    def _read_nodes(self, nodes: list[Node], measured: list[Gpu]) -> _Inventory:
        if nodes != self._nodes or measured != self._measured:
            self._nodes, self._measured = nodes, measured
            found = [(node, list_gpus(node)) for node in nodes if parse_text(node.name)]
            kept = [(node, gpus) for node, gpus in found if gpus or not self.gpu_only]
            reported = (
                tuple([make_host(node) for node, _ in kept]),
                tuple([gpu for _, gpus in kept for gpu in gpus]),
                tuple([read_status(node) for node, _ in kept]),
            )
            self._inventory = add_measured_facts(reported, measured)
        return self._inventory

    def _read_jobs(self, snapshot: Snapshot) -> list[SeenJob]:
        ahead_ms, factors_of = snapshot.ahead_ms, snapshot.factors
        known = self._jobs if ahead_ms == self._ahead_ms else {}
        now: dict[int, _Known] = {}
        found: list[SeenJob] = []
        for job in snapshot.jobs:
            key = job.job_id if isinstance(job.job_id, int) else 0
            factors = factors_of.get(key, _NO_FACTORS) if factors_of else _NO_FACTORS
            before = known.get(key)
            if before is None or not _has_only_priority_changed(before.job, job):
                seen = seen_jobs(job, ahead_ms)
                reported = [add_factors(one, factors) for one in seen] if factors else seen
            elif before.factors != factors:
                reported = [add_factors(one, factors) for one in set_priority(before.seen, job)]
            else:
                reported = set_priority(before.seen, job)
            now[key] = _Known(job, factors, reported)
            found += reported
        self._jobs, self._ahead_ms = now, ahead_ms
        return found

    def _list_wanted(self, seen: list[SeenJob]) -> list[SeenJob]:
        return [job for job in seen if job.workload.gpus_requested] if self.gpu_only else seen

    def _drop_old_ends(self, seen: list[SeenJob]) -> list[SeenJob]:
        """Return all but ends reported before.

        Notes who is live, and who was and is no longer named.
        """
        live: dict[str, SeenJob] = {}
        ended: set[str] = set()
        news = []
        for job in seen:
            name, state = job.status.workload, job.status.state
            if state is RUNNING or state is PENDING:
                live[name] = job
            else:
                ended.add(name)
                if name in self._ended:
                    continue
            news.append(job)
        gone = self._live.keys() - live.keys() - ended
        self._vanished = {name: job for name, job in self._live.items() if name in gone}
        self._live, self._ended = live, ended
        return news


def _get_job_id(seen: SeenJob) -> int:
    return int(seen.workload.attributes.get("slurm_job_id", "0"))


def _has_only_priority_changed(before: Job, job: Job) -> bool:
    priority, before.priority = before.priority, job.priority
    same = before == job
    before.priority = priority
    return bool(same)


def add_factors(seen: SeenJob, factors: Factors) -> SeenJob:
    """Return the same job with what its priority is made of now."""
    rest = {k: v for k, v in seen.workload.attributes.items() if not k.startswith("priority.")}
    workload = replace(seen.workload, attributes={**rest, **factors})
    return SeenJob(workload, seen.status, seen.allocations)


def add_reservations(
    states: tuple[HostStatus, ...], reasons: Mapping[str, str]
) -> tuple[HostStatus, ...]:
    """Return the hosts' states; of one that is up and reserved the reservation is the reason."""
    if not reasons:
        return states
    return tuple(
        replace(state, reason=reasons[state.host])
        if state.state is HostState.UP and state.host in reasons
        else state
        for state in states
    )


def add_measured_facts(reported: _Inventory, measured: Sequence[Gpu]) -> _Inventory:
    """Return the scheduler's inventory, with what exporters add.

    Facts of its GPUs, and GPUs it lacks.
    """
    if not measured:
        return reported
    hosts, gpus, states = reported
    seen = {gpu.gpu: gpu for gpu in measured}
    known = {gpu.gpu for gpu in gpus}
    named = {host.host for host in hosts}
    extra = [gpu for name, gpu in sorted(seen.items()) if name not in known]
    alone = sorted({gpu.host for gpu in extra} - named)
    return (
        (*hosts, *(Host(host) for host in alone)),
        (*(_join_gpu(gpu, seen.get(gpu.gpu)) for gpu in gpus), *extra),
        (*states, *(HostStatus(host, HostState.UNKNOWN, ALONE) for host in alone)),
    )


def _join_gpu(gpu: Gpu, measured: Gpu | None) -> Gpu:
    if measured is None:
        return gpu
    return replace(gpu, uuid=measured.uuid, model=measured.model or gpu.model)
