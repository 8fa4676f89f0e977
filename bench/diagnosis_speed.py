"""The verdict on 64 GPUs over a day against the reading of the same rows, in CPU seconds."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.report import Results
from bench.workload_store import BEGIN_MS, METRICS, LargeWorkload, write_store
from marey.app.collect.clocks import StoredClock
from marey.app.diagnosis.diagnosis_query import AskDiagnosis
from marey.app.queries.workspace import Workspace
from marey.live.summary import SummaryLog
from marey.model.protocols import Selection
from marey.store.embedded.embedded_store import EmbeddedStore, open_store

GPUS, HOURS = 64, 24.0
ROUNDS = 5
TARGET = 3.0


def main() -> int:
    """Every round reads and judges anew: nothing is kept between them."""
    results = Results()
    large = LargeWorkload(gpus=GPUS, hours=HOURS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.duckdb"
        write_store(path, large)
        with open_store(path) as store:
            selection = Selection(
                tuple(METRICS), BEGIN_MS, large.end_ms + 1, workload=large.workload
            )
            judge(store, large.workload)
            read_s = min(measure(lambda: read(store, selection)) for _ in range(ROUNDS))
            judge_s = min(measure(lambda: judge(store, large.workload)) for _ in range(ROUNDS))
    results.against(
        "diagnosis of a workload",
        ratio=judge_s / read_s,
        target=TARGET,
        rival=f"reading its rows ({1e3 * judge_s:.0f} ms of CPU against {1e3 * read_s:.0f} ms)",
        size=f"{GPUS} GPUs × {HOURS:g} h × {len(METRICS)} metrics at 15 s",
        at_10x="both linear in the samples",
        higher_is_better=False,
    )
    return results.missed


def measure(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one round."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def read(store: EmbeddedStore, selection: Selection) -> int:
    """Read every row."""
    return sum(len(batch) for batch in store.scan(selection))


def judge(store: EmbeddedStore, workload: str) -> object:
    """Ask for the verdict with a workspace that remembers nothing."""
    workspace = Workspace(store, StoredClock(store, store.clusters), {}, SummaryLog(store))
    return AskDiagnosis(workload).ask(workspace)


if __name__ == "__main__":
    sys.exit(main())
