"""A causal simulation of hosts, streams and links: what starts when, for many ranks at once.

Every operation is carried out for all ranks of a stage in one array operation. A kernel starts when
its host has launched it and its stream is free; a communication moves data when its last member has
arrived.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.trace.synthetic.costs import LAUNCH_NS
from marey.trace.synthetic.faults import Conditions
from marey.trace.synthetic.layout import Ints, Layout

Floats = NDArray[np.float64]

LAUNCH_CALL_NS = 4_000.0
# A launched kernel reaches an idle device after this long.
DEVICE_LATENCY_NS = 3_000.0
END_JITTER_NS = 1_000.0
COMPUTE_STREAM = 7
MAIN_THREAD, BACKWARD_THREAD = 1000, 1001


@dataclass(frozen=True)
class Call:
    """One operation that many ranks carry out: what it is called and what it costs."""

    name: str
    kernel: str
    dur_ns: float
    step: int
    micro_batch: int = -1
    backward: bool = False
    stream: int = COMPUTE_STREAM
    kind: str = "compute"
    collective: str = ""
    group_kind: str = ""
    bytes: int = -1
    # Whether the compute stream waits until it has ended.
    blocking: bool = True
    # The path of modules it belongs to, and the shapes of its inputs as JSON text.
    module: str = ""
    shapes: str = ""


@dataclass
class CallRecord:
    """A call as it happened on the ranks that made it."""

    call: Call
    ranks: Ints
    host_start: Floats
    host_dur: Floats
    start: Floats
    end: Floats
    peers: Ints | None = None


class Simulation:
    """The state of every rank: host, compute stream, communication streams."""

    def __init__(self, layout: Layout, conditions: Conditions, seed: int) -> None:
        self.layout, self.conditions = layout, conditions
        self.rng = np.random.default_rng(seed)
        self.host = np.zeros(layout.world)
        self.device = np.zeros(layout.world)
        self.streams: dict[int, Floats] = {}
        self.emissions: list[CallRecord] = []
        # Host-only events: name, step, ranks, start, dur.
        self.spans: list[tuple[str, int, Ints, Floats, Floats]] = []
        # Gradients as hosts pass them on: step, ranks, time, bytes.
        self.gradients: list[tuple[int, Ints, Floats, int]] = []
        self.pending: dict[tuple[int, int, str], deque[tuple[Call, Ints, Floats, Floats]]] = {}
        self.pause_at: Ints = self.rng.integers(3, 12, layout.world)
        self.launched = np.zeros(layout.world, np.int64)
        self.groups = {kind: np.array(groups) for kind, groups in layout.groups().items()}

    def span(self, name: str, *, step: int, ranks: Ints, start: Floats, end: Floats) -> None:
        """Record a host annotation."""
        self.spans.append((name, step, ranks, start.copy(), end - start))

    def launch(self, ranks: Ints, step: int) -> tuple[Floats, Floats]:
        """Return the host starts and costs of one launch, with pauses where the conditions have
        them.
        """
        self.launched[ranks] += 1
        pausing = self.launched[ranks] == self.pause_at[ranks]
        self.host[ranks] += np.where(pausing, self.conditions.pause_ns[ranks, step], 0.0)
        start = self.host[ranks].copy()
        jitter = self.rng.uniform(0.8, 1.3, len(ranks))
        cost = LAUNCH_NS * self.conditions.launch[ranks, step] * jitter
        self.host[ranks] += cost
        return start, cost

    def compute(self, call: Call, ranks: Ints) -> None:
        """Run a kernel on the compute stream of these ranks."""
        host_start, cost = self.launch(ranks, call.step)
        start = np.maximum(self.host[ranks] + DEVICE_LATENCY_NS, self.device[ranks] + 1_000)
        end = start + call.dur_ns * self._pace(call, ranks)
        self.device[ranks] = end
        self.emissions.append(
            CallRecord(
                call=call, ranks=ranks, host_start=host_start, host_dur=cost, start=start, end=end
            )
        )

    def _pace(self, call: Call, ranks: Ints) -> Floats:
        c = self.conditions
        pace: Floats = c.compute[ranks, call.step] * np.exp(self.rng.normal(0, 0.015, len(ranks)))
        pace *= c.stage[ranks // (self.layout.data * self.layout.tensor)]
        if call.backward:
            pace *= c.backward_only[ranks, call.step]
        if call.micro_batch >= 0:
            replica = self.layout.replica_of(ranks)
            pace *= c.sequence[replica, call.step, call.micro_batch]
        return pace

    def stream(self, number: int) -> Floats:
        """Return when each rank's stream of this number is free."""
        return self.streams.setdefault(number, np.zeros(self.layout.world))

    def collective(self, call: Call, groups: Ints, *, after: Floats | None = None) -> None:
        """Run a collective in each of these groups (rows of ranks)."""
        ranks = groups.reshape(-1)
        host_start, cost = self.launch(ranks, call.step)
        ready = self.device[ranks] if after is None else after
        free = self.stream(call.stream)
        arrival = np.maximum(self.host[ranks] + DEVICE_LATENCY_NS, np.maximum(ready, free[ranks]))
        last = arrival.reshape(groups.shape).max(axis=1)
        slow = self._link(groups) if call.group_kind == "data" else self.conditions.transfer
        transfer = call.dur_ns * slow * self.rng.uniform(0.97, 1.05, len(groups))
        end = np.repeat(last + transfer, groups.shape[1])
        end = end + self.rng.uniform(0, END_JITTER_NS, len(ranks))
        free[ranks] = end
        if call.blocking:
            self.device[ranks] = np.maximum(self.device[ranks], end)
        self.emissions.append(
            CallRecord(
                call=call, ranks=ranks, host_start=host_start, host_dur=cost, start=arrival, end=end
            )
        )

    def _link(self, groups: Ints) -> Floats:
        """Return how much longer than healthy the transfers across hosts of these groups take."""
        c = self.conditions
        slow: Floats = c.link[groups].max(axis=1) * c.transfer
        return slow

    def send(self, call: Call, ranks: Ints, peers: Ints) -> None:
        """Start sending from each rank to its peer; it ends when the peer has received."""
        host_start, cost = self.launch(ranks, call.step)
        ready = np.maximum(self.host[ranks] + DEVICE_LATENCY_NS, self.device[ranks])
        key = (int(ranks[0]), int(peers[0]), call.collective)
        call_and_times = (call, ranks, np.stack([host_start, cost]), ready)
        self.pending.setdefault(key, deque()).append(call_and_times)

    def can_receive(self, ranks: Ints, peers: Ints) -> bool:
        """Return whether the peers have already sent."""
        return bool(self.pending.get((int(peers[0]), int(ranks[0]), "send")))

    def receive(self, call: Call, ranks: Ints, peers: Ints) -> None:
        """Receive what the peers sent; the compute stream waits for it."""
        host_start, cost = self.launch(ranks, call.step)
        free = self.stream(call.stream)
        arrival = np.maximum(self.host[ranks] + DEVICE_LATENCY_NS, self.device[ranks])
        arrival = np.maximum(arrival, free[ranks])
        sent, _, host, ready = self.pending[(int(peers[0]), int(ranks[0]), "send")].popleft()
        sending = self.stream(sent.stream)
        departure = np.maximum(ready, sending[peers])
        edges = zip(peers.tolist(), ranks.tolist(), strict=True)
        slow = np.array([self.conditions.edge.get(edge, 1.0) for edge in edges])
        slow = slow * self.conditions.transfer * self.rng.uniform(0.97, 1.05, len(ranks))
        end = np.maximum(arrival, departure) + call.dur_ns * slow
        end_sent = end + self.rng.uniform(0, END_JITTER_NS, len(ranks))
        end = end + self.rng.uniform(0, END_JITTER_NS, len(ranks))
        free[ranks], sending[peers] = end, end_sent
        self.device[ranks] = np.maximum(self.device[ranks], end)
        self.emissions.append(
            CallRecord(
                call=sent,
                ranks=peers,
                host_start=host[0],
                host_dur=host[1],
                start=departure,
                end=end_sent,
                peers=ranks,
            )
        )
        self.emissions.append(
            CallRecord(
                call=call,
                ranks=ranks,
                host_start=host_start,
                host_dur=cost,
                start=arrival,
                end=end,
                peers=peers,
            )
        )

    def synchronise(self, ranks: Ints) -> None:
        """Let the hosts wait until their devices have finished everything."""
        for free in self.streams.values():
            self.device[ranks] = np.maximum(self.device[ranks], free[ranks])
        self.host[ranks] = np.maximum(self.host[ranks], self.device[ranks]) + 5_000
