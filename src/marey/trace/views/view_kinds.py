"""What a rank does at a moment, as the Marey view colours it."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from marey.model.training.traces import EventKind


class ViewKind(IntEnum):
    """The colours of the Marey view; part of the wire format, so append only."""

    NOTHING = 0
    COMPUTE = 1
    COLLECTIVE = 2
    SEND = 3
    RECEIVE = 4
    COPY = 5
    IDLE_PEERS = 6
    IDLE_HOST = 7
    IDLE_INPUT = 8
    IDLE_OTHER = 9


KIND_COUNT = len(ViewKind)
KIND_NAMES = tuple(kind.name.lower() for kind in ViewKind)
FIRST_IDLE = int(ViewKind.IDLE_PEERS)

_OF_EVENT = {
    EventKind.COMPUTE: ViewKind.COMPUTE,
    EventKind.MEMSET: ViewKind.COMPUTE,
    EventKind.CPU_OP: ViewKind.COMPUTE,
    EventKind.COLLECTIVE: ViewKind.COLLECTIVE,
    EventKind.SEND: ViewKind.SEND,
    EventKind.RECV: ViewKind.RECEIVE,
    EventKind.MEMCPY: ViewKind.COPY,
}
# Where streams overlap, the first of these is drawn on the rank's row.
PRIORITY = (
    ViewKind.COMPUTE,
    ViewKind.SEND,
    ViewKind.RECEIVE,
    ViewKind.COLLECTIVE,
    ViewKind.COPY,
    ViewKind.IDLE_PEERS,
    ViewKind.IDLE_HOST,
    ViewKind.IDLE_INPUT,
    ViewKind.IDLE_OTHER,
    ViewKind.NOTHING,
)
PRIORITY_ORDER = np.array(PRIORITY, np.int64)


def view_kinds(kinds: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Return the colour of each event's kind."""
    table = np.full(128, ViewKind.COMPUTE, np.uint8)
    for event, view in _OF_EVENT.items():
        table[event] = view
    return table[kinds.astype(np.int64)]
