"""Memory of a diagnosis: bounded by the window that is asked for, not by the workload's life."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from bench.report import Results
from bench.workload_store import BEGIN_MS, LargeWorkload, write_store

GPUS = 256
WINDOW_H = 1
SHORT_H, LONG_H = 4.0, 48.0
# Room for what differs between two runs of the same thing.
TARGET = 1.15
ASK = """
import resource, sys
from pathlib import Path
from marey.app.queries.server_client import ask
from marey.app.diagnosis.diagnosis_query import AskDiagnosis
path, begin, end = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
found = ask(path, AskDiagnosis("large", from_ms=begin, to_ms=end))
assert found["window"] is not None
print(found["window"]["samples"], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def peak_mb(path: Path, begin_ms: int, end_ms: int) -> float:
    """The peak memory of a fresh process that diagnoses a window."""
    command = [sys.executable, "-c", ASK, str(path), str(begin_ms), str(end_ms)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(answer.split()[1])


def main() -> int:
    """The same window of a short and of a long life; then the whole of the long one."""
    results = Results()
    with tempfile.TemporaryDirectory() as folder:
        peaks = {}
        for hours in (SHORT_H, LONG_H):
            path = Path(folder) / f"{hours:g}.duckdb"
            write_store(path, LargeWorkload(gpus=GPUS, hours=hours))
            begin = BEGIN_MS + 2 * 3_600_000
            peaks[hours] = peak_mb(path, begin, begin + WINDOW_H * 3_600_000)
        whole = peak_mb(path, BEGIN_MS, BEGIN_MS + round(LONG_H * 3_600_000))
    results.against(
        f"an hour of a life of {LONG_H:g} h",
        ratio=peaks[LONG_H] / peaks[SHORT_H],
        target=TARGET,
        rival=f"an hour of one of {SHORT_H:g} h "
        f"({peaks[LONG_H]:.0f} MB against {peaks[SHORT_H]:.0f} MB)",
        size=f"{GPUS} GPUs, 6 metrics at 15 s",
        at_10x="the same: only the window is read",
        higher_is_better=False,
    )
    results.line(
        "the whole life at once",
        f"{whole:.0f} MB",
        size=f"{GPUS} GPUs × {LONG_H:g} h × 6 metrics, {GPUS * 11520 * 6 / 1e6:.0f} million values",
        at_10x="240 MB of values at most: a longer life is looked at in coarser steps",
    )
    return results.missed


if __name__ == "__main__":
    sys.exit(main())
