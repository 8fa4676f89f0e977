from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from numba import njit

from marey.app.memory import give_back


def code_kb(library: str) -> int:
    """Kilobytes of a library's code that are in memory for this process."""
    mine, total = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            mine = words[1] == "r-xp" and words[-1].endswith(library)
        elif mine and words[0] == "Rss:":
            total += int(words[1])
    return total


@pytest.mark.skipif(sys.platform != "linux", reason="memory is told apart by mapping on Linux only")
def test_the_compiler_leaves_memory_and_works_when_it_is_needed_again() -> None:
    assert njit(lambda x: x + 1)(1) == 2
    before = code_kb("/libllvmlite.so")
    give_back()
    assert code_kb("/libllvmlite.so") < before / 4
    assert njit(lambda x: x + 2)(1) == 3


def test_a_server_starts_without_what_only_diagnoses_need() -> None:
    """SciPy would be 60 MB of every server, also of one that nobody asks for a diagnosis."""
    program = "import sys, marey.cli.serving, marey.api.application; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # (Numba looks whether there is a SciPy; that alone is small.)
    heavy = {f"scipy.{part}" for part in ("cluster", "sparse", "spatial", "special", "stats")}
    assert not heavy & set(done.stdout.split())
