from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from marey.app.memory import give_back
from marey.stats import sketch
from marey.stats import sketch_statistics as ask


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
def test_the_compiler_leaves_memory_and_kernels_still_answer() -> None:
    agg = sketch.empty_agg(2)
    agg[:, sketch.COUNT], agg[:, sketch.MAX] = 1, [3, 5]
    assert ask.exact(ask.GREATEST, agg).tolist() == [3, 5]
    before = code_kb("/libllvmlite.so")
    give_back()
    assert code_kb("/libllvmlite.so") < before / 4
    assert ask.exact(ask.GREATEST, agg).tolist() == [3, 5]
    # A kernel for another type is loaded, or compiled, through it again.
    assert ask.exact(ask.GREATEST, np.asfortranarray(agg)).tolist() == [3, 5]
