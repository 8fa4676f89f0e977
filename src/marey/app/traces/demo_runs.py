"""Traces of simulated workloads: the GPU that is slow in the metrics is the slow rank in its trace.

Only a line in the list is made when a fault shows; the files are made when a run is first opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from marey.app.traces.trace_documents import RunRecord
from marey.app.traces.trace_library import TraceLibrary
from marey.model.faults import FaultKind, Truth
from marey.model.protocols import Store
from marey.trace.run.trace_run import TraceRun
from marey.trace.synthetic import Conditions, Layout, healthy, make_run_under
from marey.trace.synthetic.costs import healthy_step_ns, transfer_ns
from marey.trace.synthetic.kineto import write_kineto

MOST_RUNS = 12
# Ranks of a trace: a larger workload is traced on these many of its GPUs.
MOST_RANKS = 64
# Nobody waits for anybody on fewer.
FEWEST_RANKS = 4
STEPS = 4
# How the faults of the metrics look in a trace; others leave nothing in a few steps.
SLOW_COMPUTE = {FaultKind.SLOW_GPU: 1.6, FaultKind.THROTTLED_GPU: 1.4, FaultKind.SLOW_NODE: 1.5}
# Times a healthy step.
INPUT_SHARE, TRANSFER_SHARE = 0.6, 1.5
SHOWN = frozenset((*SLOW_COMPUTE, FaultKind.INPUT_BOUND, FaultKind.SLOW_FABRIC))


@dataclass
class DemoRuns:
    """Lists a run for each of the newest workloads whose fault a trace shows."""

    library: TraceLibrary
    store: Store
    cluster: str
    # GPUs of workloads, which do not change while they run.
    _sizes: dict[str, int] = field(default_factory=dict)

    def add(self, faults: Iterable[Truth]) -> None:
        """List the runs of these faults that are not listed yet."""
        added: set[str] = set()
        for fault in sorted(faults, key=lambda f: -f.start_ms):
            if len(added) == MOST_RUNS:
                return
            if fault.workload not in added and self._is_shown(fault):
                added.add(fault.workload)
                self.library.add_demo(make_record(self.cluster, fault))

    def _is_shown(self, fault: Truth) -> bool:
        if fault.kind not in SHOWN or not fault.workload or not fault.gpus:
            return False
        if fault.workload not in self._sizes:
            gpus = find_gpus(self.store, make_record(self.cluster, fault))
            self._sizes[fault.workload] = len(gpus)
        return self._sizes[fault.workload] >= FEWEST_RANKS


def make_record(cluster: str, fault: Truth) -> RunRecord:
    """Return the list's record of a workload with this fault."""
    digest = hashlib.blake2b(f"{cluster} {fault.workload}".encode(), digest_size=8).hexdigest()
    return RunRecord(
        id=f"d{digest}",
        name=f"{fault.workload}, {STEPS} steps",
        cluster=cluster,
        workload=fault.workload,
        origin="demo",
        state="found",
        created_ms=max(fault.start_ms, 0),
        attached_by="recording",
        fault=fault.kind,
        faulty_gpus=list(fault.gpus),
    )


def make_demo_files(store: Store) -> Callable[[RunRecord, Path], None]:
    """Return the function that writes the traces of such a run, one file per rank."""

    def make(record: RunRecord, folder: Path) -> None:
        gpus = find_gpus(store, record)
        kind = FaultKind(record.fault or FaultKind.SLOW_GPU)
        write_kineto(make_faulty_run(gpus, kind, record.faulty_gpus), folder)

    return make


def find_gpus(store: Store, record: RunRecord) -> list[str]:
    """Return the workload's GPUs in the order of its ranks, around the faulty where too many."""
    rows = store.allocations(record.cluster, workload=record.workload).to_pylist()
    gpus = sorted({row["gpu"] for row in rows} | set(record.faulty_gpus), key=_by_host)
    middle = gpus.index(record.faulty_gpus[0]) - MOST_RANKS // 2
    # Whole hosts of eight, so that groups of ranks stay on them.
    first = max(0, min(middle, len(gpus) - MOST_RANKS)) // 8 * 8
    return gpus[first : first + MOST_RANKS]


def _by_host(gpu: str) -> tuple[str, int]:
    host, _, index = gpu.rpartition(":")
    return host, int(index) if index.isdecimal() else 0


def choose_layout(gpus: int) -> Layout:
    """Return how a workload of this many GPUs trains: larger ones in a pipeline of shards."""
    if gpus >= 32 and gpus % 8 == 0:
        return Layout(data=gpus // 8, tensor=2, pipeline=4, micro_batches=8, layers=4)
    if gpus >= 16 and gpus % 4 == 0:
        return Layout(data=gpus // 4, tensor=2, pipeline=2, micro_batches=4, layers=6)
    return Layout(data=max(gpus, 2), layers=16, model="resnet50")


def make_faulty_run(gpus: list[str], kind: FaultKind, faulty: list[str]) -> TraceRun:
    """Return a run of these GPUs with the fault of the metrics on the same GPUs."""
    layout = choose_layout(len(gpus))
    ranks = [gpus.index(gpu) for gpu in faulty if gpu in gpus]
    conditions = make_conditions(layout, kind, ranks)
    seed = int.from_bytes(hashlib.blake2b(gpus[0].encode(), digest_size=2).digest())
    run = make_run_under(conditions, layout, steps=STEPS, seed=seed)
    hosts = {rank: gpu.rpartition(":")[0] for rank, gpu in enumerate(gpus)}
    infos = {rank: replace(run.info(rank), host=hosts.get(rank, "")) for rank in run.ranks}
    return TraceRun.from_tables({r: run.events(r) for r in run.ranks}, infos, run.symbols)


def make_conditions(layout: Layout, kind: FaultKind, ranks: list[int]) -> Conditions:
    """Return the conditions of a run under a fault."""
    conditions = healthy(layout, STEPS)
    step_ns = healthy_step_ns(layout)
    if kind in SLOW_COMPUTE:
        conditions.compute[ranks] = SLOW_COMPUTE[kind]
    elif kind is FaultKind.INPUT_BOUND:
        rng = np.random.default_rng(0)
        varied = rng.uniform(0.9, 1.1, conditions.input_ns.shape)
        conditions.input_ns[:] = step_ns * INPUT_SHARE * varied
    elif kind is FaultKind.SLOW_FABRIC:
        conditions.transfer = 1 + TRANSFER_SHARE * step_ns / transfer_ns(layout)
    return conditions
