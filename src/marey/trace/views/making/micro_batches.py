"""Which micro-batch each operator of a step works on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marey.model.training.traces import NO_VALUE
from marey.trace.rank.activity import BACKWARD_PHASE, FORWARD_PHASE
from marey.trace.views.view_kinds import ViewKind

Ints = NDArray[np.int64]


def number_micro_batches(columns: dict[str, Ints], launched_ns: Ints, count: int) -> Ints:
    """Return the micro-batch of each operator: as the trace says, else by repetition, else -1.

    A stage runs its micro-batches one after the other with the same operators, so that the launches
    of a phase are ``count`` equal sequences of computing. Only where they are, each is given its
    number; what computes before the first or after the last repetition belongs to none.
    """
    said = columns["micro_batch"]
    if count <= 1 or (said >= 0).any():
        return said
    numbers = np.full(len(said), NO_VALUE, np.int64)
    for phase in (FORWARD_PHASE, BACKWARD_PHASE):
        rows = np.flatnonzero((columns["phase"] == phase) & (columns["kind"] == ViewKind.COMPUTE))
        rows = rows[np.argsort(launched_ns[rows], kind="stable")]
        first, period = find_repetition(columns["name"][rows], count)
        if period:
            used = rows[first : first + period * count]
            numbers[used] = np.arange(len(used)) // period
    _number_communication(numbers, columns, launched_ns)
    return numbers


def _number_communication(numbers: Ints, columns: dict[str, Ints], launched_ns: Ints) -> None:
    """Give communications the number of what they belong to: a receive to the compute after it,
    everything else to the compute before it.
    """
    known = np.flatnonzero(numbers >= 0)
    if not len(known):
        return
    known = known[np.argsort(launched_ns[known], kind="stable")]
    talks = np.isin(columns["kind"], (ViewKind.SEND, ViewKind.RECEIVE, ViewKind.COLLECTIVE))
    rows = np.flatnonzero(talks)
    after = np.searchsorted(launched_ns[known], launched_ns[rows], "right")
    receives = columns["kind"][rows] == ViewKind.RECEIVE
    place = np.where(receives, after, after - 1)
    inside = (place >= 0) & (place < len(known))
    numbers[rows[inside]] = numbers[known[place[inside]]]


def find_repetition(names: Ints, count: int) -> tuple[int, int]:
    """Return where ``count`` equal sequences begin and how long each is; (0, 0) where there are
    none.
    """
    size = len(names)
    for period in range(size // count, 0, -1):
        same = names[period:] == names[:-period]
        needed = period * (count - 1)
        # A run of that many equal pairs is `count` copies in a row.
        total = np.cumsum(np.concatenate([[0], same.astype(np.int64)]))
        if len(total) <= needed:
            continue
        whole = np.flatnonzero(total[needed:] - total[:-needed] == needed)
        if len(whole):
            return int(whole[0]), period
    return 0, 0
