"""The communications of every rank side by side, with groups that mean the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from marey.model.training.symbols import Symbols
from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.rank.activity import Communications, Flags, Ints, RankActivity
from marey.trace.run.trace_run import RankInfo


@dataclass(frozen=True)
class Group:
    """A process group: its name, what the training code called it, and its ranks (if known)."""

    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Pool(Communications):
    """One row per device-side communication of any rank; ``group`` indexes ``groups``."""

    rank: Ints
    groups: tuple[Group, ...]
    ranks: tuple[int, ...]

    @property
    def is_exchange(self) -> Flags:
        """Return whether a row is point to point, with a known peer."""
        return np.isin(self.kind, (EventKind.SEND, EventKind.RECV)) & (self.peer >= 0)


def pool_communications(
    activities: Sequence[RankActivity], infos: Mapping[int, RankInfo], symbols: Symbols
) -> Pool:
    """Put the communications of all ranks side by side and name their groups alike."""
    columns = {
        field.name: _join_columns([getattr(a.communications, field.name) for a in activities])
        for field in fields(Communications)
    }
    counts = [len(a.communications) for a in activities]
    columns["rank"] = np.repeat(np.array([a.rank for a in activities], np.int64), counts)
    book: dict[tuple[str, tuple[int, ...]], int] = {}
    groups: list[Group] = []
    columns["group"] = _join_columns(
        [
            _global_groups(a, info=infos[a.rank], symbols=symbols, book=book, groups=groups)
            for a in activities
        ]
    )
    pool = Pool(**columns, groups=tuple(groups), ranks=tuple(a.rank for a in activities))
    return _with_global_peers(pool)


def _join_columns(parts: Sequence[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _global_groups(
    activity: RankActivity,
    *,
    info: RankInfo,
    symbols: Symbols,
    book: dict[tuple[str, tuple[int, ...]], int],
    groups: list[Group],
) -> Ints:
    """Return the group numbers of a rank's communications; a silent trace means the whole world."""
    codes = activity.communications.group
    found = np.empty(len(codes), np.int64)
    for code in np.unique(codes).tolist():
        name = symbols.text(code) if code != NO_VALUE else ""
        ranks = tuple(info.groups.get(name, ()))
        key = (name, ranks)
        if key not in book:
            book[key] = len(groups)
            groups.append(Group(name, info.group_descriptions.get(name, ""), ranks))
        found[codes == code] = book[key]
    return found


def _with_global_peers(pool: Pool) -> Pool:
    """Return peers as ranks of the run: some traces count them within the group."""
    rows = np.flatnonzero(pool.is_exchange)
    if not len(rows):
        return pool
    local = pool.peer.copy()
    order = rows[np.argsort(pool.group[rows], kind="stable")]
    cuts = np.searchsorted(pool.group[order], np.arange(len(pool.groups) + 1))
    for number, group in enumerate(pool.groups):
        of = order[cuts[number] : cuts[number + 1]]
        members = np.array(group.ranks, np.int64)
        if len(members):
            valid = of[pool.peer[of] < len(members)]
            local[valid] = members[pool.peer[valid]]
    as_group = replace(pool, peer=local)
    return as_group if _find_answered(as_group, rows) > _find_answered(pool, rows) else pool


def _find_answered(pool: Pool, rows: Ints) -> int:
    """Return how many sends and receives have a counterpart that names them."""
    send = pool.kind[rows] == EventKind.SEND
    rank, peer = pool.rank[rows], pool.peer[rows]
    width = int(max(rank.max(), peer.max())) + 1
    key = np.where(send, rank * width + peer, peer * width + rank)
    keys, place = np.unique(key, return_inverse=True)
    sends = np.bincount(place, weights=send, minlength=len(keys))
    receives = np.bincount(place, weights=~send, minlength=len(keys))
    return int(np.minimum(sends, receives).sum())
