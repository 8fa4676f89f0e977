"""How far each host's clock is from rank 0's, by timed exchanges through a key-value store.

One rank per host asks rank 0 for the time, several times over; the quickest exchange bounds the
error best (Cristian, "Probabilistic clock synchronization", 1989). Both sides are passed in, so
the same handshake runs over torch's store, JAX's coordinator or a test's dictionary.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Protocol

ROUNDS = 8


class KeyValues(Protocol):
    """The little that a handshake needs of a distributed store."""

    def put(self, key: str, value: str) -> None:
        """Publish a value for every rank."""

    def wait(self, key: str) -> str:
        """Return the value, once somebody has published it; raises after the store's time-out."""


def offset_samples(
    store: KeyValues,
    *,
    rank: int,
    world_size: int,
    host: str,
    label: str,
    now_ns: Callable[[], int] = time.time_ns,
) -> list[dict[str, int]]:
    """Measure this host's clock against rank 0's: ``offset_ns`` to *add* to get rank 0's time.

    Every rank must call it. Ranks that share a host share one exchange. Each sample says when it
    was taken, and half its round trip, the most by which it can be wrong.
    """
    store.put(f"{label}/host/{rank}", host)
    hosts = [store.wait(f"{label}/host/{r}") for r in range(world_size)]
    askers = [r for r in range(world_size) if hosts.index(hosts[r]) == r and hosts[r] != hosts[0]]
    if rank == 0:
        for asker in askers:
            _answer(store, label, asker, now_ns)
    if host == hosts[0]:
        return [{"at_ns": now_ns(), "offset_ns": 0, "error_ns": 0}]
    asker = hosts.index(host)
    if rank == asker:
        samples = _ask(store, label, asker, now_ns)
        store.put(f"{label}/result/{asker}", json.dumps(samples))
        return samples
    shared: list[dict[str, int]] = json.loads(store.wait(f"{label}/result/{asker}"))
    return shared


def _answer(store: KeyValues, label: str, asker: int, now_ns: Callable[[], int]) -> None:
    for turn in range(ROUNDS):
        store.wait(f"{label}/ask/{asker}/{turn}")
        received = now_ns()
        store.put(f"{label}/reply/{asker}/{turn}", f"{received} {now_ns()}")


def _ask(
    store: KeyValues, label: str, asker: int, now_ns: Callable[[], int]
) -> list[dict[str, int]]:
    samples = []
    for turn in range(ROUNDS):
        asked = now_ns()
        store.put(f"{label}/ask/{asker}/{turn}", "")
        received, replied = map(int, store.wait(f"{label}/reply/{asker}/{turn}").split())
        heard = now_ns()
        offset = ((received - asked) + (replied - heard)) // 2
        error = max(0, ((heard - asked) - (replied - received)) // 2)
        samples.append({"at_ns": heard, "offset_ns": offset, "error_ns": error})
    # The first exchanges pay for connections; the quickest three are all that is worth keeping.
    return sorted(samples, key=lambda sample: sample["error_ns"])[:3]
