"""The links between ranks, and what messages and collectives over them cost in a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
POINT_TO_POINT = ("send", "recv")
# What bandwidth was measured on where ranks send messages to each other.
MESSAGES = "messages"
# A rank's link is slower than the others' only if every pair it is part of shows it.
SLOW_LINK = 0.7
# What a ring moves over each link, in sizes of the whole, for n ranks.
RING_SHARE: dict[str, Callable[[int], float]] = {
    "allreduce": lambda n: 2 * (n - 1) / n,
    "reducescatter": lambda n: (n - 1) / n,
    "allgather": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
}


@dataclass(frozen=True)
class CollectiveCost:
    """How long a collective takes alone: ``latency + per_byte · bytes``, never below ``least``.

    A negative latency is the credit that a shaped or buffered link gives after a pause; it only
    counts for a collective that finds the link idle.
    """

    per_byte_ms: float
    latency_ms: float
    least_ms: float
    largest: int
    smallest: int
    # Relative scatter of the fit's residuals.
    scatter: float
    # From the rank's asking to the backend's beginning, where nothing is queued before it.
    start_ms: float = 0.0

    def split(self, size: float, *, alone: bool) -> tuple[float, float]:
        """Return the latency, and the time that the bytes take, of a collective of this size."""
        moving = self.per_byte_ms * size
        if self.latency_ms >= 0 or not alone:
            return self.start_ms + max(self.latency_ms, 0.0), moving
        moving = max(moving + self.latency_ms, 0.0)
        return self.start_ms + max(self.least_ms - moving, 0.0), moving


@dataclass(frozen=True)
class LinkChoice:
    """Links that are so many times as fast, with another credit."""

    factor: float
    credit_bytes: float


@dataclass(frozen=True)
class Links:
    """The links of all ranks, each with its bandwidth up and down in bytes per ms."""

    ranks: tuple[int, ...]
    up: tuple[float, ...]
    down: tuple[float, ...]
    collectives: Mapping[str, CollectiveCost]
    message_latency_ms: float
    # How many collectives of a group run at once.
    at_once: int
    # Which kinds the bandwidth was measured on, and the bandwidth that per-byte costs stand for.
    measured_on: str
    reference: float
    # Bytes of messages that a link lets through at once after a pause.
    credit_bytes: float = 0.0
    # What explains the recorded messages as well.
    as_good: tuple[LinkChoice, ...] = ()

    def bandwidth(self) -> Floats:
        """Return the bandwidth of every link: up and down of each rank in turn."""
        return np.array([value for pair in zip(self.up, self.down, strict=True) for value in pair])

    def credits(self) -> Floats:
        """Return the credit of every link in bytes, in the order of their bandwidths."""
        return np.full(2 * len(self.ranks), self.credit_bytes)

    def up_of(self, rank: int) -> int:
        """Return the number of the link that leaves the rank."""
        return 2 * self.ranks.index(rank)

    def down_of(self, rank: int) -> int:
        """Return the number of the link that reaches the rank."""
        return 2 * self.ranks.index(rank) + 1

    def faster(self, factor: float, ranks: Sequence[int] | None = None) -> Links:
        """Return the same links with the bandwidth of some, or all, multiplied."""
        mine = [ranks is None or rank in ranks for rank in self.ranks]
        up = tuple(b * factor if m else b for b, m in zip(self.up, mine, strict=True))
        down = tuple(b * factor if m else b for b, m in zip(self.down, mine, strict=True))
        return replace(self, up=up, down=down)

    def message(
        self, size: float, source: int, target: int
    ) -> tuple[float, float, tuple[int, ...]]:
        """Return latency, bytes and links of a message between two ranks, for the replay."""
        lines = (self.up_of(source), self.down_of(target))
        return self.message_latency_ms, max(size, 1.0), lines

    def ring(
        self, kind: str, size: float, ranks: Sequence[int], *, alone: bool = False
    ) -> tuple[float, float, tuple[int, ...]]:
        """Return latency, bytes and links of a ring over these ranks, for the replay."""
        latency, moving = self.collective(kind).split(size, alone=alone)
        lines = tuple(line for r in ranks for line in (self.up_of(r), self.down_of(r)))
        return latency, moving * self.reference, lines

    def by_tree(self) -> Links:
        """Return all-reduce over a double tree: as many bytes as a ring, fewer hops."""
        hops = np.ceil(np.log2(max(len(self.ranks), 2))) / max(len(self.ranks) - 1, 1)
        return replace(self, collectives=self._with_all_reduce(1.0, float(hops)))

    def by_hosts(self, per_host: int) -> Links:
        """Return all-reduce within hosts first, then as a ring over one rank of each.

        What moves within a host is taken to cost nothing beside what moves between hosts.
        """
        hosts = len(self.ranks) // per_host
        share = get_ring_share("allreduce", hosts) if hosts > 1 else 0.0
        share /= get_ring_share("allreduce", len(self.ranks))
        hops = max(hosts - 1, 0) / max(len(self.ranks) - 1, 1)
        return replace(self, collectives=self._with_all_reduce(share, hops))

    def _with_all_reduce(self, share: float, hops: float) -> dict[str, CollectiveCost]:
        """Return the collectives with the bytes and the latency of all-reduce multiplied."""
        cost = self.collective("allreduce")
        changed = replace(
            cost,
            per_byte_ms=cost.per_byte_ms * share,
            latency_ms=cost.latency_ms * hops if cost.latency_ms > 0 else cost.latency_ms,
            least_ms=cost.least_ms * hops,
        )
        return {**self.collectives, "allreduce": changed}

    def delayed(self, factor: float) -> Links:
        """Return the same links with every latency multiplied."""
        slower = {
            kind: replace(
                cost,
                latency_ms=cost.latency_ms * factor if cost.latency_ms > 0 else cost.latency_ms,
                least_ms=cost.least_ms * factor,
            )
            for kind, cost in self.collectives.items()
        }
        return replace(
            self, collectives=slower, message_latency_ms=self.message_latency_ms * factor
        )

    def collective(self, kind: str) -> CollectiveCost:
        """Return the cost of a kind of collective, from its own runs or from the links alone."""
        if kind in self.collectives:
            return self.collectives[kind]
        share = get_ring_share(kind, len(self.ranks))
        slope = share / self.reference
        known = next(iter(self.collectives.values()), None)
        latency = known.latency_ms if known else self.message_latency_ms
        return CollectiveCost(
            per_byte_ms=slope,
            latency_ms=max(latency, 0.0),
            least_ms=0.0,
            largest=0,
            smallest=0,
            scatter=0.1,
        )


def get_ring_share(kind: str, ranks: int) -> float:
    """Return the bytes that a ring moves over each link, as a share of the whole."""
    return RING_SHARE.get(kind, RING_SHARE["allreduce"])(max(ranks, 2))


def find_slow_links(links: Links) -> tuple[int, ...]:
    """Return the ranks whose own link is slower than the others'."""
    usual = float(np.median(links.up))
    return tuple(
        rank for rank, speed in zip(links.ranks, links.up, strict=True) if speed < SLOW_LINK * usual
    )


def over_ranks(links: Links, count: int) -> Links:
    """Return links of another number of ranks, with rings that go over all of them."""
    before = len(links.ranks)
    usual = float(np.median(links.up))
    hops = (count - 1) / max(before - 1, 1)
    shares = {k: (get_ring_share(k, before), get_ring_share(k, count)) for k in links.collectives}
    costs = {
        kind: replace(
            cost,
            per_byte_ms=cost.per_byte_ms * shares[kind][1] / shares[kind][0],
            latency_ms=cost.latency_ms * hops if cost.latency_ms > 0 else cost.latency_ms,
            least_ms=cost.least_ms * hops,
        )
        for kind, cost in links.collectives.items()
    }
    same = tuple(usual for _ in range(count))
    return replace(links, ranks=tuple(range(count)), up=same, down=same, collectives=costs)
