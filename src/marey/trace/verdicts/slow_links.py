"""Judges of communication: a link slower than its kind, or a run that mostly transfers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from marey.trace.graph.cost_graph import Floats, Ints, NodeKind
from marey.trace.ranks.bandwidth import bus_factor
from marey.trace.ranks.communications import Pool
from marey.trace.results import Verdict, VerdictKind
from marey.trace.verdicts.situation import Fix, Proposal, Situation

# Transfers of one kind and size differ by a few per cent between healthy links; congestion and
# different hops reach perhaps a half.
SLOW_LINK_RATIO = 1.8
# Only a minority can be slow: otherwise it is what the network does.
LARGEST_MINORITY = 0.5
# Above this share of exposed transfer a run waits for the network rather than computes.
COMMUNICATION_SHARE = 0.35
# Even 1 Gbit Ethernet carries over 110 MB/s: a link with a third of it is no healthy one. Ranks
# that shared two cores and sent through memory reached 150 MB/s.
SLOWEST_NETWORK_MB_S = 40.0
# … and it is named from this share of the run on.
CRAWLING_SHARE = 0.2
LARGE_BYTES = 256 << 10
FEWEST_LARGE = 4


@dataclass(frozen=True)
class _Links:
    """Sets of ranks that exchange the same kind and size of data, and how long that takes."""

    members: list[tuple[int, ...]]
    ratio: Floats
    # Per transfer node, the link it went over (-1: none) and what is usual for its type.
    of_node: Ints
    usual: Floats
    peers: Ints


def find_slow_links(situation: Situation) -> list[Proposal]:
    """Find ranks whose transfers take longer than the same transfers between other ranks."""
    links = _measure(situation)
    if links is None:
        return []
    slow = np.flatnonzero((links.ratio >= SLOW_LINK_RATIO) & (links.peers >= 2))
    comparable = int((links.peers >= 2).sum())
    if not len(slow) or len(slow) > LARGEST_MINORITY * comparable:
        return []
    ranks = _common_ranks(links, slow)
    chosen = np.isin(links.of_node, slow)
    worst = float(links.ratio[slow].max())
    verdict = Verdict(
        kind=VerdictKind.SLOW_LINK,
        ranks=ranks,
        steps=situation.step_list(),
        operators=_names(situation, chosen),
        confidence=float(np.clip(0.6 + 0.1 * (worst - SLOW_LINK_RATIO), 0.6, 0.95))
        * situation.match_confidence,
        evidence=(
            f"transfers among ranks {_show_links(links.members[int(slow[0])])} take {worst:.1f}× "
            "as long as the same transfers elsewhere, after the last rank has arrived",
            f"{len(slow)} of {comparable} comparable links are slow",
        ),
    )
    return [Proposal(verdict, _to_usual(chosen, links.usual))]


def _measure(situation: Situation) -> _Links | None:
    """Return every set of ranks that meets, with its transfers against what is usual for their
    type.
    """
    graph = situation.graph
    nodes = np.flatnonzero((graph.kind == NodeKind.TRANSFER) & (graph.item >= 0))
    if not len(nodes):
        return None
    team, members = _number_rank_sets(graph.item[nodes], graph.rank[nodes])
    kind = graph.blocks.type[graph.block[nodes]]
    pair = np.stack([kind, team])
    pairs, place = np.unique(pair, axis=1, return_inverse=True)
    place = place.reshape(-1)
    middle = _medians(graph.work_ns[nodes], place, pairs.shape[1])
    usual = np.empty(pairs.shape[1])
    peers = np.empty(pairs.shape[1], np.int64)
    for one in np.unique(pairs[0]):
        same = np.flatnonzero(pairs[0] == one)
        usual[same] = np.quantile(middle[same], 0.25)
        peers[same] = len(same)
    of_node = np.full(graph.dag.count, -1, np.int64)
    of_node[nodes] = place
    usual_of_node = np.zeros(graph.dag.count)
    usual_of_node[nodes] = usual[place]
    ratio = middle / np.maximum(usual, 1.0)
    return _Links([members[t] for t in pairs[1].tolist()], ratio, of_node, usual_of_node, peers)


def _number_rank_sets(item: Ints, rank: Ints) -> tuple[Ints, list[tuple[int, ...]]]:
    """Return the set of ranks of each row's item, numbered, and the sets."""
    rng = np.random.default_rng(11)
    code = rng.integers(1, 2**62, int(rank.max()) + 1, dtype=np.int64)
    total = np.zeros(int(item.max()) + 1, np.int64)
    np.add.at(total, item, code[rank])
    _, first, team = np.unique(total[item], return_index=True, return_inverse=True)
    order = np.argsort(item, kind="stable")
    cuts = np.searchsorted(item[order], np.arange(int(item.max()) + 2))
    members = []
    for row in first.tolist():
        at = item[row]
        members.append(tuple(sorted(set(rank[order[cuts[at] : cuts[at + 1]]].tolist()))))
    return team.reshape(-1), members


def _medians(values: Floats, place: Ints, count: int) -> Floats:
    order = np.lexsort((values, place))
    cuts = np.searchsorted(place[order], np.arange(count + 1))
    middle = (cuts[:-1] + cuts[1:] - 1) // 2
    medians: Floats = values[order[middle]]
    return medians


def _common_ranks(links: _Links, slow: Ints) -> tuple[int, ...]:
    """Return the ranks that lie on every slow link, less those that also lie on a fast one of its
    kind.
    """
    common = set(links.members[int(slow[0])])
    for at in slow.tolist():
        common &= set(links.members[at])
    if not common:
        common = set().union(*(links.members[at] for at in slow.tolist()))
    sizes = {len(links.members[at]) for at in slow.tolist()}
    fast = [
        m
        for at, m in enumerate(links.members)
        if links.ratio[at] < SLOW_LINK_RATIO and links.peers[at] >= 2 and len(m) in sizes
    ]
    # Only ranks of groups can be cleared: both ends of a pair belong to its link.
    if min(sizes) > 2:
        cleared = common - set().union(*(set(m) for m in fast)) if fast else common
        common = cleared or common
    return tuple(sorted(common))


def _to_usual(chosen: np.ndarray, usual: Floats) -> Fix:
    def fix(work: Floats, delay: Floats) -> tuple[Floats, Floats]:
        return np.where(chosen, np.minimum(work, usual), work), delay

    return fix


def _names(situation: Situation, chosen: np.ndarray) -> tuple[str, ...]:
    graph = situation.graph
    kinds = np.unique(graph.blocks.type[graph.block[chosen]])
    return tuple(sorted({graph.blocks.type_names[k] for k in kinds.tolist()}))


def _show_links(ranks: tuple[int, ...]) -> str:
    text = ", ".join(str(r) for r in ranks[:8])
    return text if len(ranks) <= 8 else f"{text}, … ({len(ranks)})"


def find_mostly_transfers(situation: Situation) -> list[Proposal]:
    """Find a run that spends its time in transfers that nobody's lateness explains."""
    graph = situation.graph
    transfers = graph.kind == NodeKind.TRANSFER
    if not transfers.any() or not (graph.item[transfers] >= 0).any():
        return []

    def fix(work: Floats, delay: Floats) -> tuple[Floats, Floats]:
        return np.where(transfers, 0.0, work), delay

    verdict = Verdict(
        kind=VerdictKind.COMMUNICATION_BOUND,
        steps=situation.step_list(),
        operators=_names(situation, transfers),
        confidence=0.8 * situation.match_confidence,
        evidence=("transfers that compute does not hide; what could be won is an upper bound",),
    )
    pace = _measure_pace(situation)
    if pace is None or pace >= SLOWEST_NETWORK_MB_S:
        return [Proposal(verdict, fix, COMMUNICATION_SHARE)]
    crawling = replace(
        verdict,
        kind=VerdictKind.SLOW_LINK,
        # The slower, the surer.
        confidence=(0.9 - 0.2 * pace / SLOWEST_NETWORK_MB_S) * situation.match_confidence,
        evidence=(
            f"in large transfers a link carries {pace:.1f} MB/s after the last rank has arrived: "
            "some link among these ranks is slow, and which one the trace does not show",
            *verdict.evidence,
        ),
    )
    return [Proposal(crawling, fix, CRAWLING_SHARE)]


def _measure_pace(situation: Situation) -> float | None:
    """Return the MB/s that a link carries in large transfers; None where there are too few."""
    pool, item = situation.pool, situation.item
    if pool is None:
        return None
    graph = situation.graph
    nodes = np.flatnonzero((graph.kind == NodeKind.TRANSFER) & (graph.item >= 0))
    # The graph leaves out items that no step holds, so neither numbering bounds the other.
    carried = np.zeros(max(int(graph.item.max(initial=0)), int(item.max(initial=0))) + 1)
    joined = np.flatnonzero(item >= 0)
    load = pool.bytes[joined] * _factors(situation, pool, joined)
    np.maximum.at(carried, item[joined], load)
    load = carried[graph.item[nodes]]
    large = (load >= LARGE_BYTES) & (graph.work_ns[nodes] > 0)
    if large.sum() < FEWEST_LARGE:
        return None
    return float(np.median(load[large] / graph.work_ns[nodes][large] * 1e3))


def _factors(situation: Situation, pool: Pool, rows: Ints) -> Floats:
    """Return the bytes of each communication on each link, as multiples of its size."""
    kinds = np.stack([pool.collective[rows], pool.group[rows]])
    pairs, place = np.unique(kinds, axis=1, return_inverse=True)
    factors = [
        bus_factor(
            situation.symbols.text(name) if name >= 0 else "",
            len(pool.groups[group].ranks) if group >= 0 else 2,
        )
        for name, group in pairs.T.tolist()
    ]
    return np.array(factors)[place.reshape(-1)]
