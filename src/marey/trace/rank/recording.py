"""What a recording can tell at all: host events, links, captures, kernels without a launch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.training.symbols import Symbols
from marey.model.training.traces import COMMUNICATION_KINDS, EventKind
from marey.stats.intervals import Intervals, intersect, merge, subtract, unite
from marey.trace.rank.idle import HostTime, IdleTime
from marey.trace.run.name_codes import codes_of

# Calls that put work on a device: kernels, graphs of kernels, copies are left out.
_LAUNCH = re.compile(r"launch(?:cooperative)?kernel|^(?:cu|hip)launch|graphlaunch", re.IGNORECASE)
_CAPTURE = re.compile(r"stream(?:begin|end)capture", re.IGNORECASE)
_CAPTURE_END = re.compile(r"streamendcapture", re.IGNORECASE)
# How serving engines name their steps: sglang's "step[DECODE bs=32]", vLLM's "execute_context_…".
_REQUEST = re.compile(r"\b(?:prefill|decode|extend)\b|^execute_", re.IGNORECASE)
_PREFILL = re.compile(r"prefill|extend|context_[1-9]", re.IGNORECASE)
_DECODE = re.compile(r"decode|generation_[1-9]", re.IGNORECASE)
# Calls in which a host waits for a message, a request or another process.
_WAITING = re.compile(
    r"^(?:<built-in (?:method|function) (?:sleep|clock_nanosleep|sched_yield|poll|epoll|select|recv"
    r"|recv_into|recv_bytes|accept|acquire)\b"
    r"|(?:.*/)?(?:zmq/[^:]*|socket\.py[^:]*|connection\.py[^:]*): _?(?:recv|poll|wait)"
    r"|(?:.*/)?(?:selectors|threading|queue)\.py\(\d+\): (?:select|wait|get)$"
    r"|.*: (?:recv_requests|recv_pyobj|acquire_read|dequeue|event_loop_idle)$|time\.sleep)"
)
# Kernels by which ranks exchange data themselves: figures count them as compute, as others do.
_EXCHANGING = re.compile(
    r"cross_device_reduce|(?:one|two)_?shot_?all_?reduce|multimem_all_(?:reduce|gather)"
    r"|allreduce_fusion|nvshmem|mscclpp|userbuffers_|all_to_all_vdev",
    re.IGNORECASE,
)
# A pause of the host in which nothing was recorded, worth telling.
SILENCE_NS = 1_000_000
# Fewer launches than this say nothing about whether their kernels were recorded.
FEWEST_LAUNCHES = 20
# A host recorded for this many times as long as its device worked is worth a sentence.
LONGER_THAN_DEVICE = 1.5
# Idle time of which this share was spent capturing graphs is no run's idle time.
CAPTURED_SHARE = 0.3
# Operators and calls that wait for the device, a copy or another rank: no work of the host's own.
_AWAITING = re.compile(
    r"synchronize|streamwait|eventquery|memcpy|memset|barrier|c10d|gloo|nccl|record_param_comms"
    r"|^aten::(?:item|_local_scalar_dense|copy_|_to_copy|to|nonzero|is_nonzero|equal)$",
    re.IGNORECASE,
)
# A call is what a pause was spent in if it lasted for this share of it.
MOST_OF_A_PAUSE = 0.8
_DOING = (EventKind.CPU_OP, EventKind.RUNTIME, EventKind.PYTHON, EventKind.SYNC)
# A recording holds the work it launched if this share of the launches has any.
RECORDED_SHARE = 0.1


@dataclass(frozen=True)
class Recording:
    """The facts that decide how far a verdict about one rank can go."""

    has_device: bool = True
    device_events: int = 0
    # Device work without a recorded launch, and how long it ran.
    unlinked_events: int = 0
    unlinked_ns: int = 0
    # The union of kernels, and of those with a recorded launch.
    compute_ns: int = 0
    linked_compute_ns: int = 0
    # From the first to the last device work, and what of it transfers and copies took alone.
    span_ns: int = 0
    exposed_comm_ns: int = 0
    exposed_memcpy_ns: int = 0
    host_events: int = 0
    python_events: int = 0
    launch_calls: int = 0
    # Launch calls that some recorded device work came from.
    answered_calls: int = 0
    # Launch calls without any, though device work of a later one was recorded.
    lost_calls: int = 0
    capture_calls: int = 0
    # Idle time that its host is blamed for, and how much of it the host captured graphs.
    host_idle_ns: int = 0
    captured_idle_ns: int = 0
    graph_launches: int = 0
    prefill_steps: int = 0
    decode_steps: int = 0
    # Host-bound idle time in which the host recorded nothing for long, or only waited.
    silent_ns: int = 0
    # From the first to the last operator or call of the host.
    host_span_ns: int = 0
    # Kernels by which ranks exchange data themselves; part of compute.
    exchange_ns: int = 0
    # What the host did for most of the longest pause that it is blamed for; empty if nothing.
    longest_pause_in: str = ""
    # Whether that is an operator or a call of the runtime at work, which waits for nobody.
    works_in_pause: bool = False

    @property
    def is_capture(self) -> bool:
        """Return whether graphs were captured here and hardly anything ran."""
        captured = self.captured_idle_ns >= CAPTURED_SHARE * self.host_idle_ns > 0
        return self.capture_calls > 0 and (self.misses_its_work or captured)

    @property
    def misses_its_work(self) -> bool:
        """Return whether most of what the host launched is not in the recording."""
        enough = self.launch_calls >= FEWEST_LAUNCHES
        # Work of graphs is many events of one launch, and links may be missing: count both.
        seen = max(self.answered_calls, self.device_events)
        return enough and seen < RECORDED_SHARE * self.launch_calls


def is_launch(name: str) -> bool:
    """Return whether a runtime call of this name puts kernels on a device."""
    return _LAUNCH.search(name) is not None


def is_graph_launch(name: str) -> bool:
    """Return whether a runtime call of this name starts a captured graph."""
    return "graphlaunch" in name.lower()


def is_capture(name: str) -> bool:
    """Return whether a runtime call of this name begins or ends the capture of a graph."""
    return _CAPTURE.search(name) is not None


def is_capture_end(name: str) -> bool:
    """Return whether a runtime call of this name ends the capture of a graph."""
    return _CAPTURE_END.search(name) is not None


def is_prefill(name: str) -> bool:
    """Return whether an annotation of this name is a serving engine's prefill step."""
    return _REQUEST.search(name) is not None and _PREFILL.search(name) is not None


def is_decode(name: str) -> bool:
    """Return whether an annotation of this name is a serving engine's decode step."""
    return _REQUEST.search(name) is not None and _DECODE.search(name) is not None


def is_waiting(name: str) -> bool:
    """Return whether a host in a call of this name waits for somebody else."""
    return _WAITING.match(name) is not None


def is_exchange(name: str) -> bool:
    """Return whether a kernel of this name exchanges data with other ranks by itself."""
    return _EXCHANGING.search(name) is not None


def state_recording(rank: int, found: Recording) -> list[str]:
    """Return sentences on a rank's recording that a reader of its figures should know."""
    notes = []
    if 0 < found.unlinked_events < found.device_events:
        notes.append(
            f"rank {rank}: {found.unlinked_events} of {found.device_events} device events have no "
            f"recorded launch; with them kernels ran {found.compute_ns / 1e6:.3f} ms, and tools "
            f"that drop them (TraceLens) show {found.linked_compute_ns / 1e6:.3f} ms"
        )
    if found.has_device and found.host_span_ns > LONGER_THAN_DEVICE * found.span_ns > 0:
        notes.append(
            f"rank {rank}: the host was recorded for {found.host_span_ns / 1e6:.1f} ms, and its "
            f"device worked within {found.span_ns / 1e6:.1f} ms of it: every figure is about the "
            "latter"
        )
    if found.exchange_ns > 0:
        notes.append(
            f"rank {rank}: {found.exchange_ns / 1e6:.3f} ms of compute are kernels that exchange "
            "data between ranks (symmetric memory, custom all-reduce)"
        )
    if found.prefill_steps or found.decode_steps:
        notes.append(
            f"rank {rank}: inference: {found.prefill_steps} prefill and {found.decode_steps} "
            f"decode steps, {found.graph_launches} launches of captured graphs"
        )
    return notes


def describe_recording(
    events: Mapping[str, NDArray[Any]],
    symbols: Symbols,
    *,
    idle: IdleTime,
    busy: Intervals,
    host: HostTime,
    has_device: bool,
) -> Recording:
    """Count what a rank's recording holds and lacks."""
    device = events["on_device"].astype(bool)
    kind, name = events["kind"], events["name"]
    linked = device & (events["launch"] >= 0)
    runtime = ~device & np.isin(kind, (EventKind.RUNTIME, EventKind.CPU_OP))
    marks = ~device & (kind == EventKind.ANNOTATION)

    def named(rows: NDArray[np.bool_], predicate: Any) -> int:
        return int((rows & np.isin(name, codes_of(symbols, predicate))).sum())

    def during(rows: NDArray[np.bool_]) -> Intervals:
        return merge(events["start_ns"][rows], events["dur_ns"][rows])

    talking = device & np.isin(kind, COMMUNICATION_KINDS)
    copying = device & (kind == EventKind.MEMCPY)
    computes = device & ~talking & ~copying
    compute, talks, copies = during(computes), during(talking), during(copying)
    launches = runtime & np.isin(name, codes_of(symbols, is_launch))
    answered = np.unique(events["launch"][linked])
    lost = launches.copy()
    lost[answered] = False
    lost &= events["start_ns"] < events["start_ns"][answered].max(initial=0)
    loose = device & ~linked
    works = ~device & np.isin(kind, (EventKind.CPU_OP, EventKind.RUNTIME))
    paused = _find_longest_pause(events, idle.host) if has_device else -1
    pause = symbols.text(int(name[paused])) if paused >= 0 else ""
    return Recording(
        has_device=has_device,
        device_events=int(device.sum()) if has_device else 0,
        unlinked_events=int(loose.sum()) if has_device else 0,
        unlinked_ns=int(events["dur_ns"][loose].sum()) if has_device else 0,
        compute_ns=compute.total_ns,
        linked_compute_ns=during(computes & linked).total_ns,
        span_ns=_measure_span(events, device) if len(busy.start_ns) else 0,
        exposed_comm_ns=subtract(talks, compute).total_ns,
        exposed_memcpy_ns=subtract(copies, unite(compute, talks)).total_ns,
        host_events=int((~device).sum()),
        python_events=int((kind == EventKind.PYTHON).sum()),
        launch_calls=int(launches.sum()),
        answered_calls=int(launches[answered].sum()) if len(answered) else 0,
        lost_calls=int(lost.sum()),
        capture_calls=named(runtime, is_capture),
        host_idle_ns=idle.host.total_ns,
        captured_idle_ns=intersect(idle.host, _find_captures(events, symbols, runtime)).total_ns,
        graph_launches=named(runtime, is_graph_launch),
        prefill_steps=named(marks, is_prefill),
        decode_steps=named(marks, is_decode),
        silent_ns=_measure_silence(events, symbols, idle, host) if has_device else 0,
        host_span_ns=_measure_span(events, works),
        exchange_ns=during(computes & np.isin(name, codes_of(symbols, is_exchange))).total_ns
        if has_device
        else 0,
        longest_pause_in=pause,
        works_in_pause=paused >= 0 and bool(works[paused]) and not _AWAITING.search(pause),
    )


def _find_longest_pause(events: Mapping[str, NDArray[Any]], paused: Intervals) -> int:
    """Return the row of the shortest call that lasted for most of the longest pause, or -1."""
    if not len(paused.start_ns):
        return -1
    at = int(np.argmax(paused.end_ns - paused.start_ns))
    begin, end = int(paused.start_ns[at]), int(paused.end_ns[at])
    start, dur = events["start_ns"], events["dur_ns"]
    inside = np.minimum(start + dur, end) - np.maximum(start, begin)
    works = ~events["on_device"].astype(bool) & np.isin(events["kind"], _DOING)
    rows = np.flatnonzero(works & (inside >= MOST_OF_A_PAUSE * (end - begin)))
    return int(rows[np.argmin(dur[rows])]) if len(rows) else -1


def _find_captures(
    events: Mapping[str, NDArray[Any]], symbols: Symbols, runtime: NDArray[np.bool_]
) -> Intervals:
    """Return when graphs were captured: from each begin of a thread to the end that follows it."""
    rows = np.flatnonzero(runtime & np.isin(events["name"], codes_of(symbols, is_capture)))
    rows = rows[np.lexsort((events["start_ns"][rows], events["stream"][rows]))]
    ends = np.isin(events["name"][rows], codes_of(symbols, is_capture_end))
    thread = events["stream"][rows]
    pairs = np.flatnonzero(~ends[:-1] & ends[1:] & (thread[:-1] == thread[1:]))
    begin, end = rows[pairs], rows[pairs + 1]
    start = events["start_ns"][begin].astype(np.int64)
    return merge(start, events["start_ns"][end] + events["dur_ns"][end] - start)


def _measure_span(events: Mapping[str, NDArray[Any]], rows: NDArray[np.bool_]) -> int:
    if not rows.any():
        return 0
    start = events["start_ns"][rows]
    return int((start + events["dur_ns"][rows]).max() - start.min())


def _measure_silence(
    events: Mapping[str, NDArray[Any]], symbols: Symbols, idle: IdleTime, host: HostTime
) -> int:
    """Return how long a host that is blamed recorded nothing, or waited in the thread that
    launches.
    """
    called = events["launch"][events["launch"] >= 0]
    launching = np.isin(events["stream"], np.unique(events["stream"][called]))
    waits = launching & ~events["on_device"].astype(bool)
    waits &= np.isin(events["name"], codes_of(symbols, is_waiting))
    waited = intersect(idle.host, merge(events["start_ns"][waits], events["dur_ns"][waits]))
    silence = subtract(idle.host, unite(host.recorded, waited))
    length = silence.end_ns - silence.start_ns
    return int(length[length >= SILENCE_NS].sum()) + waited.total_ns
