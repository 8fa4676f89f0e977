"""Recorded jobs and a policy laid out for the replay: hosts, pools, partitions, requests, order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput, unknown
from marey.queue.policy.policy import Policy
from marey.queue.policy.policy_parts import PartitionRule, Reservation
from marey.queue.policy.recorded_jobs import WHOLE_GPU, Floats, Ints, RecordedJobs
from marey.sim.passes.host_room import Requests, Words, build_mask

Flags = NDArray[np.bool_]
# Why a job can never start as it was asked for.
STARTABLE, NO_HOSTS, OVER_LIMIT, NO_PARTITION = 0, 1, 2, 3
NEVER_WORDS = {
    NO_HOSTS: "no hosts have what it asks for",
    OVER_LIMIT: "a limit of the policy forbids it",
    NO_PARTITION: "no partition of the policy takes it",
}
# A tier outweighs every other part of the priority.
_TIER_WEIGHT = 1e9
_MUCH = np.int64(1) << 50


@dataclass(frozen=True)
class HostTable:
    """The hosts of a replay; CPUs and memory are without bound where they do not count."""

    names: tuple[str, ...]
    gpus: Ints
    cpus: Ints
    memory_mb: Ints
    models: tuple[str, ...]
    partitions: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class ReplayLayout:
    """Everything about the jobs and hosts that does not change between replays."""

    hosts: HostTable
    requests: Requests
    pools: Words
    partitions: Words
    # Per partition and then per quality of service: GPUs and jobs of a user, GPUs of all.
    group_limits: Ints
    # Per job: STARTABLE or why not.
    verdict: Ints
    fixed: Floats
    stranded: Floats
    # Per row of a job's hosts: where it runs from the first moment on, −1 if it does not.
    first_hosts: Ints
    # Moments (ms), hosts and changes (−1 out of service, 1 back), in order of time.
    outages: tuple[Ints, Ints, Ints]


def lay_out_hosts(jobs: RecordedJobs, policy: Policy) -> HostTable:
    """Return the hosts that a policy works on: the recorded ones, others, more or fewer."""
    table = _list_given_hosts(policy) if policy.hosts else _list_recorded_hosts(jobs)
    for added in policy.add_hosts:
        table = _change_hosts(table, added.count, added.model)
    if not len(table.gpus) or table.gpus.sum() <= 0:
        raise InvalidInput("There are no hosts with GPUs to replay the jobs on.")
    if table.gpus.max() > 64:
        raise InvalidInput(f"A host of {int(table.gpus.max())} GPUs; at most 64 are allowed.")
    return table


def _list_given_hosts(policy: Policy) -> HostTable:
    kinds = [kind for kind in policy.hosts for _ in range(kind.count)]
    return HostTable(
        names=tuple(str(i + 1) for i in range(len(kinds))),
        gpus=np.array([kind.gpus for kind in kinds], np.int64),
        cpus=np.array([kind.cpus or _MUCH for kind in kinds], np.int64),
        memory_mb=np.array([kind.memory_mb or _MUCH for kind in kinds], np.int64),
        models=tuple(kind.model for kind in kinds),
        partitions=((),) * len(kinds),
    )


def _list_recorded_hosts(jobs: RecordedJobs) -> HostTable:
    many, site = len(jobs.host_gpus), jobs.site
    much = np.full(many, _MUCH)
    return HostTable(
        names=site.names or tuple(str(i + 1) for i in range(many)),
        gpus=np.asarray(jobs.host_gpus, np.int64),
        cpus=np.where(site.cpus > 0, site.cpus, _MUCH) if len(site.cpus) else much,
        memory_mb=np.where(site.memory_mb > 0, site.memory_mb, _MUCH)
        if len(site.memory_mb)
        else much,
        models=site.models or ("",) * many,
        partitions=site.partitions or ((),) * many,
    )


def _change_hosts(table: HostTable, count: int, model: str) -> HostTable:
    """Return the table with copies of a model's last host, or without its last hosts."""
    of_model = [i for i, name in enumerate(table.models) if not model or name == model]
    if not of_model:
        raise InvalidInput(unknown("GPU model of a host", model, sorted(set(table.models))))
    if count >= 0:
        rows = [*range(len(table.gpus)), *[of_model[-1]] * count]
    else:
        if -count > len(of_model):
            raise InvalidInput(f"{-count} hosts fewer of {len(of_model)} cannot be taken away.")
        gone = set(of_model[count:])
        rows = [i for i in range(len(table.gpus)) if i not in gone]
    names = [table.names[i] for i in rows]
    for i in range(len(rows) - max(0, count), len(rows)):
        names[i] = f"added{i + 1}"
    return HostTable(
        names=tuple(names),
        gpus=table.gpus[rows],
        cpus=table.cpus[rows],
        memory_mb=table.memory_mb[rows],
        models=tuple(table.models[i] for i in rows),
        partitions=tuple(table.partitions[i] for i in rows),
    )


def lay_out_jobs(jobs: RecordedJobs, policy: Policy) -> ReplayLayout:
    """Return requests, hosts, pools and fixed priorities of a replay."""
    table = lay_out_hosts(jobs, policy)
    rules, masks = _list_partitions(jobs, policy, table)
    partition, admitted = _choose_partitions(jobs, policy, rules)
    pool, pools = _list_pools(jobs, table, partition, masks)
    tier = _find_tiers(jobs, policy, rules, partition)
    counts = policy.cpu_and_memory
    requests = Requests(
        gpus=np.asarray(jobs.gpus_per_host, np.int64),
        share=_find_shares(jobs, policy),
        cpus=jobs.fill("cpus_per_host", 0) if counts else np.zeros(len(jobs), np.int64),
        memory=jobs.fill("memory_mb_per_host", 0) if counts else np.zeros(len(jobs), np.int64),
        hosts=np.asarray(jobs.hosts, np.int64),
        pool=pool,
        limit=np.maximum(1, jobs.limit_ms // 1000),
        owner=np.asarray(jobs.owner, np.int64),
        project=jobs.fill("project", 0),
        partition=partition,
        qos=_number_qos(jobs, policy, len(rules)),
        tier=tier,
        first=np.cumsum(jobs.hosts) - jobs.hosts,
    )
    verdict = _judge_requests(jobs, policy, table, asked=requests, pools=pools)
    verdict[~admitted] = NO_PARTITION
    return ReplayLayout(
        hosts=table,
        requests=requests,
        pools=np.array([build_mask(mask) for mask in pools]),
        partitions=np.array([build_mask(mask) for mask in masks]),
        group_limits=np.array(
            [
                *([rule.max_gpus_per_user, 0, rule.max_gpus_in_use] for rule in rules),
                *([q.max_gpus_per_user, q.max_jobs_per_user, q.max_gpus] for q in policy.qos),
            ],
            np.int64,
        ),
        first_hosts=_place_running(jobs, table, requests),
        outages=_list_outages(jobs, table),
        verdict=verdict,
        fixed=compute_fixed_priority(jobs, policy, table) + tier * _TIER_WEIGHT,
        stranded=weigh_stranded(jobs.gpus_per_host, int(table.gpus.max())),
    )


def _list_partitions(
    jobs: RecordedJobs, policy: Policy, table: HostTable
) -> tuple[list[PartitionRule], list[Flags]]:
    """Return the partitions and their hosts: the policy's, else the recorded ones, else one."""
    many = len(table.gpus)
    if policy.partitions:
        return list(policy.partitions), [_find_hosts(rule, table) for rule in policy.partitions]
    names = sorted(set(jobs.partition))
    members = [np.array([name in one for one in table.partitions]) for name in names]
    if not names or not all(mask.any() for mask in members):
        return [PartitionRule("all")], [np.ones(many, np.bool_)]
    return [PartitionRule(name) for name in names], members


def _number_qos(jobs: RecordedJobs, policy: Policy, partitions: int) -> Ints:
    """Return the row of each job's quality of service among the limits; −1 without limits."""
    rows = {rule.name: partitions + i for i, rule in enumerate(policy.qos)}
    if not rows or not len(jobs.qos):
        return np.full(len(jobs), -1, np.int64)
    known = np.array([rows.get(name, -1) for name in jobs.qos_names], np.int64)
    return np.asarray(known[jobs.qos])


def _place_running(jobs: RecordedJobs, table: HostTable, requests: Requests) -> Ints:
    """Return the hosts of what runs from the first moment on, as far as they are there and free."""
    held = np.full(int(requests.hosts.sum()), -1, np.int64)
    places = {name: i for i, name in enumerate(table.names)}
    free = table.gpus.copy()
    for job, hosts in enumerate(jobs.first_hosts):
        if len(hosts) != requests.hosts[job] or requests.share[job] < WHOLE_GPU:
            continue
        rows = [places.get(jobs.site.names[host], -1) for host in hosts]
        need = requests.gpus[job]
        if all(row >= 0 and free[row] >= need for row in rows):
            held[requests.first[job] : requests.first[job] + len(rows)] = rows
            free[rows] -= need
    return held


def _list_outages(jobs: RecordedJobs, table: HostTable) -> tuple[Ints, Ints, Ints]:
    """Return when hosts of the table go out of service and come back."""
    places = {name: i for i, name in enumerate(table.names)}
    names, gone = jobs.site.names, jobs.outages
    rows = [
        (int(moment), places[names[host]], change)
        for host, begin, end in zip(gone.host, gone.begin_ms, gone.end_ms, strict=True)
        for moment, change in ((begin, -1), (end, 1))
        if names[host] in places
    ]
    columns = np.array(sorted(rows), np.int64).reshape(-1, 3)
    return columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy()


def _find_hosts(rule: PartitionRule, table: HostTable) -> Flags:
    """Return the hosts of a partition: by name, those that it has, or so many of a model."""
    if rule.hosts:
        missing = [name for name in rule.hosts if name not in table.names]
        if missing:
            raise InvalidInput(
                unknown(f"host of partition '{rule.name}'", missing[0], table.names[:50])
            )
        return np.array([name in rule.hosts for name in table.names])
    recorded = np.array([rule.name in names for names in table.partitions])
    if not (rule.model or rule.count or rule.first) and recorded.any():
        return recorded
    able = [i for i, model in enumerate(table.models) if not rule.model or model == rule.model]
    chosen = able[rule.first : rule.first + rule.count] if rule.count else able[rule.first :]
    if not chosen:
        raise InvalidInput(f"Partition '{rule.name}' of the policy has no hosts.")
    mask = np.zeros(len(table.gpus), np.bool_)
    mask[chosen] = True
    return mask


def _choose_partitions(
    jobs: RecordedJobs, policy: Policy, rules: list[PartitionRule]
) -> tuple[Ints, Flags]:
    """Return each job's partition: its own where that takes it, else the first that does."""
    many = len(jobs)
    if len(rules) == 1 and not policy.partitions:
        return np.zeros(many, np.int64), np.ones(many, np.bool_)
    chosen = np.full(many, -1, np.int64)
    gpus, limit_s = jobs.gpus, jobs.limit_ms / 1000.0
    takes = [
        (gpus >= rule.min_gpus)
        & (gpus <= (rule.max_gpus or np.inf))
        & (limit_s <= (rule.max_time_s or np.inf))
        for rule in rules
    ]
    if len(jobs.partition):
        number = {rule.name: i for i, rule in enumerate(rules)}
        own = np.array([number.get(name, -1) for name in jobs.partition], np.int64)
        for i, able in enumerate(takes):
            chosen[(own == i) & able] = i
    # Who has no place in its own partition goes to the first that takes it.
    homeless = chosen < 0
    for i in range(len(rules) - 1, -1, -1):
        chosen[homeless & takes[i]] = i
    return np.maximum(chosen, 0), chosen >= 0


def _list_pools(
    jobs: RecordedJobs, table: HostTable, partition: Ints, masks: list[Flags]
) -> tuple[Ints, list[Flags]]:
    """Return each job's pool and the hosts of each: its partition's, of the GPU model it names."""
    if not any(table.models) or not any(jobs.gpu_model):
        return partition, masks
    wanted = sorted({name for name in jobs.gpu_model if name})
    number = {name: i + 1 for i, name in enumerate(wanted)}
    models = np.array(table.models)
    # A request may name several models: A100|H100.
    named = [np.isin(models, name.split("|")) for name in wanted]
    pools = [part for mask in masks for part in (mask, *(mask & one for one in named))]
    rows = np.array([number.get(name, 0) for name in jobs.gpu_model], np.int64)
    return partition * (len(wanted) + 1) + rows, pools


def _find_tiers(
    jobs: RecordedJobs, policy: Policy, rules: list[PartitionRule], partition: Ints
) -> Ints:
    """Return who comes before whom whatever else counts, and may evict where that is allowed."""
    tier = 2 * (np.array([rule.tier for rule in rules], np.int64)[partition])
    plan = policy.preemption
    if plan.mode == "off":
        return tier
    if not (plan.users or plan.projects or plan.max_gpus):
        return tier + 2 * jobs.fill("tier", 0)
    favoured = np.ones(len(jobs), np.bool_)
    if plan.users:
        favoured &= np.isin(jobs.owner, [i for i, n in enumerate(jobs.owners) if n in plan.users])
    if plan.projects:
        known = [i for i, name in enumerate(jobs.projects) if name in plan.projects]
        favoured &= np.isin(jobs.fill("project", -1), known)
    if plan.max_gpus:
        favoured &= jobs.gpus <= plan.max_gpus
    return tier + favoured


def _find_shares(jobs: RecordedJobs, policy: Policy) -> Ints:
    share = jobs.fill("gpu_share", WHOLE_GPU)
    if not policy.sharing.allowed:
        return np.full(len(jobs), WHOLE_GPU, np.int64)
    if policy.sharing.share:
        part = round(policy.sharing.share * WHOLE_GPU)
        return np.where(jobs.gpus == 1, np.minimum(share, part), WHOLE_GPU)
    return np.where(jobs.gpus_per_host == 1, share, WHOLE_GPU)


def _judge_requests(
    jobs: RecordedJobs, policy: Policy, table: HostTable, *, asked: Requests, pools: list[Flags]
) -> Ints:
    """Return which requests the hosts and limits could ever meet."""
    verdict = np.zeros(len(jobs), np.int64)
    plain = not asked.cpus.any() and not asked.memory.any()
    for number, mask in enumerate(pools):
        mine = asked.pool == number if len(pools) > 1 else slice(None)
        gpus, hosts = asked.gpus[mine], asked.hosts[mine]
        if not len(gpus):
            continue
        if plain:
            # How many hosts of the pool have at least so many GPUs.
            sizes = np.bincount(table.gpus[mask], minlength=66)
            able = np.cumsum(sizes[::-1])[::-1][np.minimum(gpus, 65)]
        else:
            able = _count_able(
                table, mask, gpus=gpus, cpus=asked.cpus[mine], memory=asked.memory[mine]
            )
        verdict[mine] = np.where(able >= hosts, STARTABLE, NO_HOSTS)
    limits = policy.limits
    names = ("max_gpus_per_job", "max_gpus_per_user", "max_gpus_per_project")
    most = min(limits.get(name, np.inf) for name in names)
    over = (jobs.gpus > most) | (jobs.limit_ms > limits.get("max_time_s", np.inf) * 1000.0)
    verdict[over & (verdict == STARTABLE)] = OVER_LIMIT
    return verdict


def _count_able(table: HostTable, mask: Flags, *, gpus: Ints, cpus: Ints, memory: Ints) -> Ints:
    """Return how many hosts of a pool, empty, have what each request asks for."""
    kinds, count = np.unique(
        np.column_stack([table.gpus[mask], table.cpus[mask], table.memory_mb[mask]]),
        axis=0,
        return_counts=True,
    )
    able = np.zeros(len(gpus), np.int64)
    for (has_gpus, has_cpus, has_memory), hosts in zip(kinds, count, strict=True):
        able += hosts * ((gpus <= has_gpus) & (cpus <= has_cpus) & (memory <= has_memory))
    return able


def compute_fixed_priority(jobs: RecordedJobs, policy: Policy, table: HostTable) -> Floats:
    """Return the part of each job's priority that does not change while it waits."""
    if policy.order == "fifo":
        return np.zeros(len(jobs))
    weights = policy.weights
    gpus = jobs.gpus / max(int(table.gpus.sum()), 1)
    size = _compute_size(jobs, table, gpus)
    return np.asarray(
        weights.get("size", 0.0) * (1.0 - size if policy.favor_small else size)
        + weights.get("gpus", 0.0) * gpus
        + weights.get("recorded", 0.0) * jobs.priority
    )


def _compute_size(jobs: RecordedJobs, table: HostTable, gpus: Floats) -> Floats:
    """Return the size of each job as Slurm has it: the mean of its parts of hosts and CPUs; the
    part of the GPUs where CPUs are not told.
    """
    if not len(jobs.cpus_per_host) or not len(jobs.site.cpus):
        return gpus
    cpus = jobs.cpus_per_host * jobs.hosts / max(int(jobs.site.cpus.sum()), 1)
    return np.asarray((jobs.hosts / len(table.gpus) + cpus) / 2.0)


def weigh_stranded(needs: Ints, most: int) -> Floats:
    """Return, per number of free GPUs on a host, how many of them the typical job could not use
    (FGD).
    """
    counts = np.bincount(np.minimum(needs, most + 1), minlength=most + 2)
    larger = counts.sum() - np.cumsum(counts)
    free = np.arange(most + 1, dtype=np.float64)
    return np.asarray(larger[: most + 1] / max(int(counts.sum()), 1) * free)


def find_reserved_hosts(reservation: Reservation, table: HostTable) -> Flags:
    """Return the hosts of a reservation: by name, or the last so many."""
    if reservation.hosts:
        missing = [name for name in reservation.hosts if name not in table.names]
        if missing:
            raise InvalidInput(unknown("host of a reservation", missing[0], table.names[:50]))
        return np.array([name in reservation.hosts for name in table.names])
    mask = np.zeros(len(table.gpus), np.bool_)
    mask[len(mask) - min(reservation.count or len(mask), len(mask)) :] = True
    return mask
