"""One cluster out of several sources: names, facts and holders brought together.

Who is believed: the scheduler for which hosts and GPUs there are, their names, their state and
who holds them; the exporter for what a GPU is (UUID, model) and for who holds it where the
scheduler does not say. What is decided against is kept as a conflict.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from marey.model.inventory import Gpu, Host, HostState, HostStatus, is_same_model
from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.model.times import MINUTE_MS
from marey.sources.join.conflicts import ConflictLog, Disagreement
from marey.sources.join.holders import (
    HolderDisputes,
    Holdings,
    ReportedHolders,
    complete_allocations,
    group_gpus_by_holder,
)
from marey.sources.join.host_naming import HostNames
from marey.sources.join.labelled_workloads import LabelledChanges, LabelledWorkloads

# A host that nobody has measured for this long is no longer known by its measurements.
MEASURED_MS = 10 * MINUTE_MS
# While nothing changes, sources are compared anew only this often.
COMPARED_EVERY_MS = 5 * MINUTE_MS
Inventory = tuple[tuple[Host, ...], tuple[Gpu, ...], tuple[HostStatus, ...]]


@dataclass(slots=True)
class MeasuredGpus:
    """What one source measures: GPUs by the cluster's names, and when each host was last seen."""

    facts: dict[str, Gpu] = field(default_factory=dict)
    seen_ms: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    metrics: frozenset[str] = frozenset()
    since_ms: int = 0
    compared_ms: int = 0
    # The last report: while it is repeated, it means the same.
    reported: tuple[set[str], list[Gpu], dict[str, str]] | None = None
    renamed: tuple[Sequence[str], dict[str, str], tuple[str, ...]] | None = None


class ClusterJoin:
    """The sources of one cluster; every method may be called from any thread."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.scheduled = False
        self.conflicts = ConflictLog()
        # Set once the scheduler has answered or failed: before that its names are not known.
        self.answered = threading.Event()
        self._lock = threading.RLock()
        self._names = HostNames(self.conflicts)
        self._measured: dict[str, MeasuredGpus] = {}
        self._scheduler = ""
        self._now_ms = 0
        self._made: tuple[Inventory, int, Inventory] | None = None
        self._version = 0
        self._disputes = HolderDisputes()
        self._labelled = LabelledWorkloads()

    # Asked by sources

    def measured(self) -> list[Gpu]:
        """Return every GPU that somebody measures, by the cluster's names.

        The first source counts.
        """
        with self._lock:
            found: dict[str, Gpu] = {}
            for source in self._measured.values():
                for name, gpu in source.facts.items():
                    found.setdefault(name, gpu)
            return list(found.values())

    def list_gpus_by_holder(self) -> dict[str, list[str]]:
        """Return GPUs by what exporters say holds them: a job's number, or ``namespace/pod``."""
        with self._lock:
            return group_gpus_by_holder(self._list_reported_holders())

    def scheduler_hosts(self) -> list[str]:
        """Return the hosts that the scheduler knows."""
        with self._lock:
            return self._names.scheduler_hosts()

    def set_sources(self, measuring: Sequence[str], *, scheduled: bool) -> None:
        """Set who measures, the most believed first; what others said before is forgotten."""
        with self._lock:
            self.scheduled = scheduled
            self._measured = {
                name: self._measured.get(name) or MeasuredGpus() for name in measuring
            }
            self._version += 1

    # Metrics

    def of_metrics(
        self,
        source: str,
        observation: Observation,
        gpus: Sequence[Gpu] = (),
        jobs: Mapping[str, Sequence[str]] | None = None,
    ) -> Observation:
        """Return a source's samples by the cluster's names; ``gpus`` are all that it knows."""
        with self._lock:
            self._now_ms = max(self._now_ms, observation.time_ms)
            known = self._measured.setdefault(source, MeasuredGpus())
            known.since_ms = known.since_ms or observation.time_ms
            batches = [b for b in observation.samples if b.kind is Entity.GPU]
            named = {e.rpartition(":")[0] for b in batches for e in b.entities}
            known.metrics = frozenset(m for b in batches for m in b.columns) or known.metrics
            if observation.time_ms - known.compared_ms >= COMPARED_EVERY_MS:
                # What is still so is reported again, or it would be forgotten as settled.
                known.compared_ms, known.reported = observation.time_ms, None
                self._names.note_again(source, named, observation.time_ms)
                self._version += 1
            states = self._record_hosts(source, known, observation, named=named, gpus=gpus)
            names = self._names.renames()
            reported = (named, list(gpus), names)
            if known.reported != reported:
                self._record_facts(known, gpus, names)
                known.reported = reported
            known.jobs = {_rename_gpu(g, names): tuple(j) for g, j in (jobs or {}).items() if j}
            samples = tuple(
                self._keep_first_source(source, _rename_batch(batch, names, known))
                for batch in observation.samples
            )
            by = "metrics" if not self.scheduled else ""
            # Where no scheduler says what runs, the exporters' labels do.
            labelled = (
                LabelledChanges()
                if self.scheduled
                else self._labelled.find_changes(self._list_reported_holders(), observation.time_ms)
            )
            return replace(
                observation,
                workloads=(*observation.workloads, *labelled.workloads),
                statuses=(*observation.statuses, *labelled.statuses),
                allocations=(*observation.allocations, *labelled.allocations),
                hosts=tuple(
                    replace(h, host=names.get(h.host, h.host), known_by=by)
                    for h in observation.hosts
                ),
                gpus=tuple(replace(g, host=names.get(g.host, g.host)) for g in observation.gpus),
                host_states=(
                    *(replace(s, host=names.get(s.host, s.host)) for s in observation.host_states),
                    *states,
                ),
                events=tuple(
                    replace(e, host=names.get(e.host, e.host), gpu=_rename_gpu(e.gpu, names))
                    for e in observation.events
                )
                if names
                else observation.events,
                samples=tuple(batch for batch in samples if len(batch)),
            )

    def _record_hosts(
        self,
        source: str,
        known: MeasuredGpus,
        observation: Observation,
        *,
        named: set[str],
        gpus: Sequence[Gpu],
    ) -> list[HostStatus]:
        """Return which hosts were measured now.

        A host that has taken another name is reported as such.
        """
        beside = {e for b in observation.samples if b.kind is Entity.HOST for e in b.entities}
        self._names.introduce(source, beside | named, observation.time_ms)
        moved = {}
        if known.reported is None or known.reported[0] != named or known.reported[1] != list(gpus):
            others = [m for name, m in self._measured.items() if name != source]
            elsewhere = {host for other in others for host in other.seen_ms}
            moved = self._names.note_measured(
                source, named, gpus, now_ms=observation.time_ms, elsewhere=elsewhere
            )
        for host in named:
            name = self._names.of(host)
            if name not in known.seen_ms:
                self._version += 1
            known.seen_ms[name] = observation.time_ms
        stale = [h for h, at in known.seen_ms.items() if observation.time_ms - at > MEASURED_MS]
        for host in [*stale, *moved]:
            self._drop_host(known, host)
        if self.scheduled:
            return []
        return [
            HostStatus(old, HostState.DOWN, f"renamed: its GPUs now report as {new}")
            for old, new in moved.items()
        ]

    def _drop_host(self, known: MeasuredGpus, host: str) -> None:
        known.seen_ms.pop(host, None)
        for name in [name for name, gpu in known.facts.items() if gpu.host == host]:
            del known.facts[name]
        self._version += 1

    def _record_facts(
        self, known: MeasuredGpus, gpus: Sequence[Gpu], names: Mapping[str, str]
    ) -> None:
        for gpu in gpus:
            host = names.get(gpu.host, gpu.host)
            if host not in known.seen_ms:
                continue
            named = gpu if host == gpu.host else replace(gpu, host=host)
            if known.facts.get(named.gpu) != named:
                known.facts[named.gpu] = named
                self._version += 1

    def _keep_first_source(self, source: str, batch: SampleBatch) -> SampleBatch:
        """Leave out what a source that stands before this one measures on the same GPUs."""
        before = []
        for name, other in self._measured.items():
            if name == source:
                break
            before.append((name, other))
        if batch.kind is not Entity.GPU or not before:
            return batch
        for name, other in before:
            batch = self._drop_measured_twice(source, batch, name, other)
        return batch

    def _drop_measured_twice(
        self, source: str, batch: SampleBatch, name: str, other: MeasuredGpus
    ) -> SampleBatch:
        twice = [at for at, entity in enumerate(batch.entities) if entity in other.facts]
        shared = other.metrics & set(batch.columns)
        if not twice or not shared:
            return batch
        self.conflicts.note(
            Disagreement(
                "measured_twice",
                self.cluster,
                f"{len(twice)} GPUs",
                taken_from=name,
                other=", ".join(sorted(shared)[:8]),
                other_from=source,
                text="the source that stands first in the configuration counts",
            ),
            self._now_ms,
        )
        return drop_values(batch, twice, shared, other.since_ms)

    # Scheduler

    def of_scheduler(
        self, source: str, observation: Observation, aliases: Mapping[str, str] | None = None
    ) -> Observation:
        """Return the scheduler's observation with the facts, hosts and holders of exporters."""
        with self._lock:
            self._scheduler = source
            self._now_ms = max(self._now_ms, observation.time_ms)
            if self._names.take_scheduler((h.host for h in observation.hosts), aliases or {}):
                self._version += 1
            reported = (observation.hosts, observation.gpus, observation.host_states)
            hosts, gpus, states = self._get_inventory(reported)
            workloads, allocations = self._find_holders(observation)
            self.conflicts.forget_before(observation.time_ms)
            return replace(
                observation,
                hosts=hosts,
                gpus=gpus,
                host_states=states,
                workloads=workloads,
                allocations=allocations,
            )

    def _get_inventory(self, reported: Inventory) -> Inventory:
        """Return the scheduler's inventory and what exporters add; equal tuples until it changes.

        The store and the live table pass over tuples that they have seen.
        """
        if self._made is not None:
            before, version, made = self._made
            if version == self._version and before == reported:
                return made
        made = self._join_inventory(reported)
        self._made = (reported, self._version, made)
        return made

    def _join_inventory(self, reported: Inventory) -> Inventory:
        hosts, gpus, states = reported
        measured = {gpu.gpu: gpu for gpu in self.measured()}
        seen = {host for source in self._measured.values() for host in source.seen_ms}
        known = {gpu.gpu for gpu in gpus}
        extra = [gpu for name, gpu in sorted(measured.items()) if name not in known]
        alone = sorted({gpu.host for gpu in extra} - {host.host for host in hosts})
        self._record_extra_gpus(extra, {host.host for host in hosts})
        reason = f"measured, but {self._scheduler} does not know it"
        return (
            (
                *(replace(h, known_by="both" if h.host in seen else "scheduler") for h in hosts),
                *(Host(host, known_by="metrics") for host in alone),
            ),
            (*(self._add_measured_facts(gpu, measured.get(gpu.gpu)) for gpu in gpus), *extra),
            (*states, *(HostStatus(host, HostState.UNKNOWN, reason) for host in alone)),
        )

    def _record_extra_gpus(self, extra: list[Gpu], hosts: set[str]) -> None:
        """Record GPUs that the scheduler does not count on hosts that it does know."""
        by_host: dict[str, int] = {}
        for gpu in extra:
            if gpu.host in hosts and gpu.instance is None:
                by_host[gpu.host] = by_host.get(gpu.host, 0) + 1
        for host, count in by_host.items():
            self._record_conflict("gpu_count", host, "shown as well", other=f"{count} more GPUs")

    def _add_measured_facts(self, gpu: Gpu, measured: Gpu | None) -> Gpu:
        """Return the scheduler's GPU with UUID and model of the one measured in its place."""
        if measured is None:
            return gpu
        if gpu.model and measured.model and not is_same_model(gpu.model, measured.model):
            said = Disagreement(
                "model",
                gpu.gpu,
                measured.model,
                taken_from="exporter",
                other=gpu.model,
                other_from=self._scheduler,
            )
            self.conflicts.note(said, self._now_ms)
        return replace(
            gpu,
            uuid=measured.uuid or gpu.uuid,
            model=measured.model or gpu.model,
            power_limit_w=gpu.power_limit_w or measured.power_limit_w,
            memory_mib=gpu.memory_mib or measured.memory_mib,
        )

    def _record_conflict(
        self, kind: str, subject: str, taken: str, *, other: str, text: str = ""
    ) -> None:
        said = Disagreement(
            kind,
            subject,
            taken,
            taken_from=self._scheduler,
            other=other,
            other_from="exporter",
            text=text,
        )
        self.conflicts.note(said, self._now_ms)

    # Who holds what

    def _list_reported_holders(self) -> list[ReportedHolders]:
        return [source.jobs for source in self._measured.values()]

    def _find_holders(self, observation: Observation) -> Holdings:
        reported = self._list_reported_holders()
        held = group_gpus_by_holder(reported)
        if not held:
            return observation.workloads, observation.allocations
        for dispute in self._disputes.find_lasting(observation, reported):
            self._record_conflict(
                "holder", dispute.gpu, dispute.by_scheduler, other=dispute.by_exporter
            )
        return complete_allocations(observation, held)


def _rename_gpu(gpu: str, names: Mapping[str, str]) -> str:
    host, colon, index = gpu.rpartition(":")
    return f"{names[host]}:{index}" if colon and host in names else gpu


def _rename_batch(batch: SampleBatch, names: Mapping[str, str], known: MeasuredGpus) -> SampleBatch:
    if not names:
        return batch
    if batch.kind is Entity.HOST:
        return replace(batch, entities=tuple(names.get(e, e) for e in batch.entities))
    last = known.renamed
    if last is None or last[0] != batch.entities or last[1] != names:
        entities = tuple(_rename_gpu(e, names) for e in batch.entities)
        last = known.renamed = (batch.entities, dict(names), entities)
    return replace(batch, entities=last[2])


def drop_values(
    batch: SampleBatch, entities: Sequence[int], metrics: Iterable[str], since_ms: int
) -> SampleBatch:
    """Return the batch without these metrics of these entities from a moment on."""
    dropped = np.isin(batch.entity, np.array(entities, np.int32)) & (batch.time_ms >= since_ms)
    columns = dict(batch.columns)
    for metric in metrics:
        columns[metric] = np.where(dropped, np.float32(np.nan), columns[metric])
    left = np.zeros(len(batch), bool)
    for values in columns.values():
        left |= ~np.isnan(values)
    return replace(
        batch,
        time_ms=batch.time_ms[left],
        entity=batch.entity[left],
        columns={name: values[left] for name, values in columns.items()},
        workload=None if batch.workload is None else batch.workload[left],
    )
