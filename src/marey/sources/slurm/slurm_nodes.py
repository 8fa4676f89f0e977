"""Node and partition documents → hosts, their GPUs and states, and partitions."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from marey.model.inventory import Gpu, Host, HostState, HostStatus
from marey.model.inventory import Partition as ModelPartition
from marey.model.names import bounded
from marey.sources.slurm.gres import list_node_models
from marey.sources.slurm.slurm_json import Node, Partition
from marey.sources.slurm.values import (
    parse_number,
    parse_text,
    parse_whole,
    parse_word,
    parse_words,
)

_DOWN = frozenset(
    "DOWN ERROR NOT_RESPONDING INVALID INVALID_REG INVAL POWERED_DOWN POWERING_DOWN POWER_DOWN "
    "NO_RESPOND".split()
)
_DRAINED = frozenset("DRAIN DRAINED DRAINING DRNG FAIL FAILING".split())
_UNKNOWN = frozenset(("UNKNOWN", "FUTURE"))
_DAYS = re.compile(r"^(?:(\d+)-)?(\d+):(\d+)(?::(\d+))?$")


def make_host(node: Node) -> Host:
    """Return the machine."""
    listed = node.partitions if isinstance(node.partitions, list) else []
    return Host(
        parse_word(node.name),
        partitions=tuple([name for name in map(parse_word, listed) if name]),
        cpus=parse_whole(node.cpus) or 0,
        memory_mib=parse_whole(node.real_memory) or 0,
    )


def list_gpus(node: Node) -> list[Gpu]:
    """Return its GPUs, numbered as Slurm numbers them."""
    host, models = parse_word(node.name), list_node_models(parse_text(node.gres))
    return [Gpu(host, index, None, "", model) for index, model in enumerate(models)]


def read_status(node: Node) -> HostStatus:
    """Return the node's status with the operator's reason; down is worse than drained."""
    state = _find_worst_state(tuple(parse_words(node.state, node.state_flags)))
    reason = parse_word(node.reason) if state is not HostState.UP else ""
    return HostStatus(parse_word(node.name), state, reason)


@lru_cache(maxsize=1024)
def _find_worst_state(found: tuple[str, ...]) -> HostState:
    for names, state in (
        (_DOWN, HostState.DOWN),
        (_DRAINED, HostState.DRAINED),
        (_UNKNOWN, HostState.UNKNOWN),
    ):
        if not names.isdisjoint(found):
            return state
    return HostState.UP if found else HostState.UNKNOWN


def make_partition(partition: Partition) -> ModelPartition:
    """Return the queue, with its time limit and tier."""
    minutes = parse_number(partition.max_time_limit)
    if minutes is None:
        minutes = parse_number(_get_inside(partition.maximums, "time"))
    tier = parse_whole(partition.priority_tier)
    if tier is None:
        tier = parse_whole(_get_inside(partition.priority, "tier"))
    return ModelPartition(
        bounded(parse_text(partition.name)),
        time_limit_s=None if minutes is None else round(minutes * 60),
        priority=tier or 0,
    )


def _get_inside(group: Any, key: str) -> Any:
    return group.get(key) if isinstance(group, dict) else None


def parse_partitions(listed: str) -> list[ModelPartition]:
    """Parse ``scontrol show partition`` of versions that have no JSON for it (before 23.02)."""
    found = []
    for block in listed.split("PartitionName=")[1:]:
        words_found = block.split()
        pairs = dict(word.split("=", 1) for word in words_found[1:] if "=" in word)
        tier = pairs.get("PriorityTier", "0")
        found.append(
            ModelPartition(
                bounded(words_found[0]),
                time_limit_s=_parse_seconds(pairs.get("MaxTime", "")),
                priority=int(tier) if tier.isdecimal() else 0,
            )
        )
    return found


def _parse_seconds(limit: str) -> int | None:
    match = _DAYS.match(limit)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
