"""Which send belongs to which receive: by the two peers, the tag and the order."""

from __future__ import annotations

import numpy as np

from marey.model.training.traces import EventKind
from marey.trace.rank.activity import Ints
from marey.trace.ranks.communications import Pool


def match_exchanges(pool: Pool, rows: Ints) -> Ints:
    """Return for each of these rows a number that its partner shares, or -1 where it has none.

    Within a step the n-th send from a to b with a tag meets the n-th receive of b from a with it.
    Where one side recorded fewer, the window was cut: the first step is aligned by its end, every
    other by its start.
    """
    if not len(rows):
        return np.zeros(0, np.int64)
    send = pool.kind[rows] == EventKind.SEND
    source = np.where(send, pool.rank[rows], pool.peer[rows])
    target = np.where(send, pool.peer[rows], pool.rank[rows])
    step, tag = pool.step[rows], pool.tag[rows]
    key = np.stack([source, target, tag, step])
    edge = np.unique(key, axis=1, return_inverse=True)[1].reshape(-1)
    called = np.where(pool.launch_ns[rows] >= 0, pool.launch_ns[rows], pool.start_ns[rows])
    order = np.lexsort((called, send, edge))
    place, size = _places(edge[order] * 2 + send[order])
    from_end = step[order] == step.min()
    place = np.where(from_end, size - 1 - place, place)
    number = np.empty(len(rows), np.int64)
    pair = np.stack([edge[order], place])
    number[order] = np.unique(pair, axis=1, return_inverse=True)[1].reshape(-1)
    both = np.bincount(number, weights=send) * np.bincount(number, weights=~send)
    return np.where(both[number] == 1, number, -1)


def _places(key: Ints) -> tuple[Ints, Ints]:
    """Return the position of each row within its run of equal keys, and the length of that run."""
    starts = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    lengths = np.diff(np.append(starts, len(key)))
    first = np.repeat(starts, lengths)
    return np.arange(len(key)) - first, np.repeat(lengths, lengths)
