"""A small run of traces and a small store, made once: what the views of runs and clusters show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from marey.model.faults import FaultKind
from marey.sim import SimConfig, Simulation
from marey.store.embedded.embedded_store import open_store
from marey.trace.results import VerdictKind
from marey.trace.synthetic import Layout, Scenario, make_run
from marey.trace.synthetic.kineto import write_kineto


@dataclass(frozen=True)
class SmallSite:
    """Traces of four ranks, and a store in which one workload loads some GPUs most."""

    traces: Path
    store: Path
    workload: str
    loaded: frozenset[str]


def make_site(folder: Path) -> SmallSite:
    """Write both below a folder."""
    traces, store = folder / "traces", folder / "site.duckdb"
    layout = Layout(data=4, layers=2)
    write_kineto(make_run(Scenario(layout, VerdictKind.SLOW_WORKER, steps=2, seed=2)).run, traces)
    config = SimConfig(gpus=128, seed=72, load=0.0, faults=0.0, warmup_ms=0, maintenance=False)
    simulation = Simulation(config)
    hours = {"duration_s": 3 * 3600.0, "time_limit_s": 6 * 3600.0}
    fault = FaultKind.BIASED_LOAD.value
    workload = simulation.submit(gpus=16, fault=fault, user=3, **hours)
    with open_store(store) as opened:
        for observation in simulation.history(0.4):
            opened.apply(observation)
            opened.append(observation.samples)
    (truth,) = [truth for truth in simulation.truth() if truth.workload == workload]
    return SmallSite(traces, store, workload, frozenset(truth.gpus))
