"""What a PyTorch trace says about its rank, beside the events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from marey.trace.readers.trace_info import RankInfo

# What marey.record leaves at the top of a trace: rank, host, groups and a clock handshake.
RECORD = "mareyRecord"


def describe(members: Mapping[str, Any], *, rank: int, source: str) -> RankInfo:
    """Return the rank's description from the members beside the events."""
    shared = _read_mapping(members.get("distributedInfo"))
    devices = members.get("deviceProperties")
    device = _read_mapping(devices[0]) if isinstance(devices, list) and devices else {}
    recorded = _read_mapping(members.get(RECORD))
    groups = _groups(shared.get("pg_config")) or _groups(recorded.get("groups"))
    return RankInfo(
        rank=rank,
        host=_string(members.get("host_name")) or _string(recorded.get("host")) or "",
        world_size=_whole(shared.get("world_size")) or _whole(recorded.get("world_size")),
        backend=_string(shared.get("backend")),
        framework="pytorch",
        device_name=_string(device.get("name")),
        groups={name: ranks for name, (ranks, _) in groups.items()},
        group_descriptions={name: text for name, (_, text) in groups.items()},
        base_ns=base_ns(members),
        source=source,
        clock_sync=recorded or None,
    )


def read_stated_rank(members: Mapping[str, Any]) -> int | None:
    """Return the rank that the trace itself claims."""
    rank = _whole(_read_mapping(members.get("distributedInfo")).get("rank"))
    if rank is None:
        rank = _whole(_read_mapping(members.get(RECORD)).get("rank"))
    return rank if rank is not None and 0 <= rank < 2**31 else None


def placed(info: RankInfo, members: Mapping[str, Any]) -> RankInfo:
    """Return the info with rank, host and world size as marey.record left them.

    Its clock is left out: such a trace counts from its own start, not from an epoch.
    """
    recorded = _read_mapping(members.get(RECORD))
    rank = read_stated_rank(members)
    return replace(
        info,
        rank=info.rank if rank is None else rank,
        host=info.host or _string(recorded.get("host")) or "",
        world_size=info.world_size or _whole(recorded.get("world_size")),
    )


def base_ns(members: Mapping[str, Any]) -> int:
    """Return the offset that makes the trace's own times absolute."""
    return _whole(members.get("baseTimeNanoseconds")) or 0


def _groups(config: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    """Process groups as both generations write them: a list, or an object by name."""
    if isinstance(config, dict):
        config = [{"pg_name": n, **_read_mapping(g)} for n, g in config.items()]
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for group in config if isinstance(config, list) else []:
        entry = _read_mapping(group)
        name = _string(entry.get("pg_name", entry.get("name")))
        ranks = entry.get("ranks")
        if name is not None and isinstance(ranks, list):
            members = tuple(r for r in ranks if type(r) is int)
            found[name] = (members, _string(entry.get("pg_desc", entry.get("description"))) or "")
    return found


def _read_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _string(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int and abs(value) < 2**62 else None
