"""Which ranks of a run nobody recorded, by what the recorded ones say of their groups."""

from __future__ import annotations

from collections.abc import Mapping

from marey.trace.readers.trace_info import RankInfo

# Groups are looked at up to this many ranks.
MOST_RANKS = 1 << 20


def find_missing_peers(infos: Mapping[int, RankInfo]) -> tuple[int, ...]:
    """Return the ranks that share a group with a recorded one and were not recorded themselves."""
    # Devices of one process are numbered here, not by their groups.
    stated = [info for info in infos.values() if info.process is None]
    grouped = {rank for info in stated for ranks in info.groups.values() for rank in ranks}
    worlds = {rank for info in stated for rank in range(min(info.world_size or 0, MOST_RANKS))}
    wanted = (grouped or worlds) if len(stated) == len(infos) else set()
    return tuple(sorted(wanted - set(infos)))
