"""Node and partition documents → hosts, their GPUs and states, and partitions."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from marey.model.inventory import Gpu, Host, HostState, HostStatus
from marey.model.inventory import Partition as ModelPartition
from marey.model.names import bounded
from marey.sources.slurm.documents import Node, Partition
from marey.sources.slurm.gres import node_models
from marey.sources.slurm.making import quick_maker
from marey.sources.slurm.values import number, text, whole, word, words

_DOWN = frozenset(
    "DOWN ERROR NOT_RESPONDING INVALID INVALID_REG INVAL POWERED_DOWN POWERING_DOWN POWER_DOWN "
    "NO_RESPOND".split()
)
_DRAINED = frozenset("DRAIN DRAINED DRAINING DRNG FAIL FAILING".split())
_UNKNOWN = frozenset(("UNKNOWN", "FUTURE"))
_host, _gpu, _status = quick_maker(Host), quick_maker(Gpu), quick_maker(HostStatus)
_DAYS = re.compile(r"^(?:(\d+)-)?(\d+):(\d+)(?::(\d+))?$")


def host_of(node: Node) -> Host:
    """The machine."""
    listed = node.partitions if isinstance(node.partitions, list) else []
    return _host(
        word(node.name),
        partitions=tuple([name for name in map(word, listed) if name]),
        cpus=whole(node.cpus) or 0,
        memory_mib=whole(node.real_memory) or 0,
    )


def gpus_of(node: Node) -> list[Gpu]:
    """Its GPUs, numbered as Slurm numbers them."""
    host, models = word(node.name), node_models(text(node.gres))
    return [_gpu(host, index, None, "", model) for index, model in enumerate(models)]


def status_of(node: Node) -> HostStatus:
    """What it can be used for, with the operator's reason; down is worse than drained."""
    state = _worst_state(tuple(words(node.state, node.state_flags)))
    reason = word(node.reason) if state is not HostState.UP else ""
    return _status(word(node.name), state, reason)


@lru_cache(maxsize=1024)
def _worst_state(found: tuple[str, ...]) -> HostState:
    for names, state in (
        (_DOWN, HostState.DOWN),
        (_DRAINED, HostState.DRAINED),
        (_UNKNOWN, HostState.UNKNOWN),
    ):
        if not names.isdisjoint(found):
            return state
    return HostState.UP if found else HostState.UNKNOWN


def partition_of(partition: Partition) -> ModelPartition:
    """The queue, with its time limit and tier."""
    minutes = number(partition.max_time_limit)
    if minutes is None:
        minutes = number(_inside(partition.maximums, "time"))
    tier = whole(partition.priority_tier)
    if tier is None:
        tier = whole(_inside(partition.priority, "tier"))
    return ModelPartition(
        bounded(text(partition.name)),
        time_limit_s=None if minutes is None else round(minutes * 60),
        priority=tier or 0,
    )


def _inside(group: Any, key: str) -> Any:
    return group.get(key) if isinstance(group, dict) else None


def partitions_of_text(listed: str) -> list[ModelPartition]:
    """``scontrol show partition`` of versions that have no JSON for it (before 23.02)."""
    found = []
    for block in listed.split("PartitionName=")[1:]:
        words_found = block.split()
        pairs = dict(word.split("=", 1) for word in words_found[1:] if "=" in word)
        tier = pairs.get("PriorityTier", "0")
        found.append(
            ModelPartition(
                bounded(words_found[0]),
                time_limit_s=_seconds(pairs.get("MaxTime", "")),
                priority=int(tier) if tier.isdecimal() else 0,
            )
        )
    return found


def _seconds(limit: str) -> int | None:
    match = _DAYS.match(limit)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
