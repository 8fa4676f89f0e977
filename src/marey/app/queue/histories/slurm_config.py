"""Read slurm.conf: the hosts and partitions of a site, and the policy that it schedules by."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

from marey.queue.policy.policy import Policy
from marey.queue.policy.policy_parts import PartitionRule, Preemption
from marey.sources.slurm.gres import count_gpus, parse_gpu_counts
from marey.sources.slurm.values import expand_hosts

PAIR = re.compile(r"(\S+?)=(\S*)")
# What slurm.conf(5) says applies where nothing is set: seconds, and minutes for the window.
_BF_INTERVAL_S, _BF_WINDOW_MIN, _BF_RESOLUTION_S, _BF_MAX_JOB_TEST = 30, 1440, 60, 500
_BATCH_SCHED_DELAY_S, _PRIORITY_CALC_S = 3, 300
# slurmctld's background thread looks once a second whether anything is to be scheduled.
_TICK_S = 1.0
_WEEK_S = 7 * 86400
# A site without slurm.conf is taken to look so often that jobs of half an hour hardly notice:
# Slurm's defaults there, and proportionally oftener where jobs are shorter.
_USUAL_RUN_S = 1800
_WEIGHTS = {
    "age": "priorityweightage",
    "size": "priorityweightjobsize",
    "fairshare": "priorityweightfairshare",
}


@dataclass(frozen=True)
class ConfiguredHost:
    """A host with GPUs as slurm.conf declares it."""

    name: str
    gpus: int
    model: str
    cpus: int
    memory_mb: int


@dataclass(frozen=True)
class SlurmConfig:
    """What a slurm.conf says that a replay needs; nothing where there is none."""

    lines: dict[str, list[str]] = field(default_factory=dict)

    def get(self, key: str) -> str:
        """Return the last value of a key (lower case), "" where it is not set."""
        return (self.lines.get(key) or [""])[-1]

    @property
    def counts_memory(self) -> bool:
        """Return whether memory is allocated to jobs."""
        return "memory" in self.get("selecttypeparameters").lower()

    def list_hosts(self) -> dict[str, ConfiguredHost]:
        """Return the hosts with GPUs by name, in Slurm's order."""
        hosts: dict[str, ConfiguredHost] = {}
        for line in self.lines.get("nodename", []):
            fields = dict(PAIR.findall(f"NodeName={line}"))
            counts = parse_gpu_counts(fields.get("Gres", ""))
            gpus = count_gpus(counts)
            for name in expand_hosts(fields["NodeName"]) if gpus else ():
                hosts[name] = ConfiguredHost(
                    name,
                    gpus,
                    next((entry.model for entry in counts if entry.model), ""),
                    _read_number(fields.get("CPUs", "")),
                    _read_number(fields.get("RealMemory", "")) if self.counts_memory else 0,
                )
        return hosts

    def list_partitions(self) -> tuple[PartitionRule, ...]:
        """Return the partitions with the hosts they name."""
        rules = []
        hosts = tuple(self.list_hosts())
        for line in self.lines.get("partitionname", []):
            fields = dict(PAIR.findall(f"PartitionName={line}"))
            named = fields.get("Nodes", "ALL")
            wanted = set(expand_hosts(named)) if named.upper() != "ALL" else set(hosts)
            rules.append(
                PartitionRule(
                    name=fields["PartitionName"],
                    hosts=tuple(name for name in hosts if name in wanted),
                    tier=_read_number(fields.get("PriorityTier", "1")) - 1,
                )
            )
        return tuple(rule for rule in rules if rule.hosts and rule.name != "DEFAULT")


def read_slurm_config(path: Path) -> SlurmConfig:
    """Return the lines of slurm.conf by their first key; nothing where there is no file."""
    found: dict[str, list[str]] = defaultdict(list)
    if path.is_file():
        for line in path.read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition("#")[0].strip().partition("=")
            if value:
                found[key.strip().lower()].append(value.strip())
    return SlurmConfig(dict(found))


def find_policy(config: SlurmConfig, *, backfilled: bool = False) -> Policy:
    """Return the policy of a configuration; without one, by whether backfill started a job.

    The moments at which Slurm looks come from SchedulerParameters, or are Slurm's defaults.
    """
    kind = config.get("schedulertype")
    strict = kind.endswith("builtin") if kind else not backfilled
    asked = dict(PAIR.findall(config.get("schedulerparameters").replace(",", " ")))
    partitions = config.list_partitions()
    tiers = len({rule.tier for rule in partitions}) > 1
    return Policy(
        order="multifactor" if "multifactor" in config.get("prioritytype") else "fifo",
        backfill="none" if strict else "conservative",
        placement="least_allocated"
        if "lln" in config.get("selecttypeparameters").lower()
        else "node_order",
        weights=_read_weights(config),
        favor_small=config.get("priorityfavorsmall").lower() in ("yes", "true", "1"),
        max_age_s=_parse_span(config.get("prioritymaxage"), _WEEK_S),
        half_life_s=_parse_span(config.get("prioritydecayhalflife"), _WEEK_S),
        depth=_read_number(asked.get("bf_max_job_test", ""), _BF_MAX_JOB_TEST),
        interval_s=_read_number(asked.get("bf_interval", ""), _BF_INTERVAL_S),
        window_s=60.0 * _read_number(asked.get("bf_window", ""), _BF_WINDOW_MIN),
        resolution_s=max(1, _read_number(asked.get("bf_resolution", ""), _BF_RESOLUTION_S)),
        tick_s=_TICK_S,
        submit_delay_s=_read_number(asked.get("batch_sched_delay", ""), _BATCH_SCHED_DELAY_S),
        recalculate_s=60.0 * _read_number(config.get("prioritycalcperiod"), _PRIORITY_CALC_S // 60),
        partitions=partitions if tiers else (),
        preemption=_read_preemption(config),
    )


def guess_pace(policy: Policy, typical_run_s: float) -> Policy:
    """Return the policy of a site whose slurm.conf is not there, at a pace that suits its jobs."""
    part = min(1.0, typical_run_s / _USUAL_RUN_S)
    return replace(
        policy,
        interval_s=max(1.0, round(part * _BF_INTERVAL_S)),
        resolution_s=max(1.0, round(part * _BF_RESOLUTION_S)),
        submit_delay_s=float(round(part * _BATCH_SCHED_DELAY_S)),
    )


def _read_weights(config: SlurmConfig) -> dict[str, float]:
    if "multifactor" not in config.get("prioritytype"):
        return {}
    weights = {name: float(_read_number(config.get(key))) for name, key in _WEIGHTS.items()}
    tres = dict(PAIR.findall(config.get("priorityweighttres").replace(",", " ")))
    weights["gpus"] = float(_read_number(tres.get("gres/gpu", "")))
    return {name: value for name, value in weights.items() if value}


def _read_preemption(config: SlurmConfig) -> Preemption:
    by_partition = config.get("preempttype").lower().endswith("partition_prio")
    mode = config.get("preemptmode").lower()
    return Preemption("requeue") if by_partition and "requeue" in mode else Preemption()


def _read_number(text: str, default: int = 0) -> int:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else default


def _parse_span(text: str, default: float) -> float:
    """Return the seconds of ``7-0``, ``1-12:30`` or minutes."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not match:
        return default
    days, first, second, third = (int(part or 0) for part in match.groups())
    if match[1] is not None:
        return days * 86400.0 + first * 3600 + second * 60 + third
    if match[3] is None:
        return first * 60.0
    return first * 3600.0 + second * 60 + third if match[4] else first * 60.0 + second
