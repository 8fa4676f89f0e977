"""Kernels give the same result interpreted and compiled, and compile only for large input."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from marey.stats.intervals import _merge_sorted

PROGRAM = """
import sys
import numpy as np

from marey.stats.intervals import _merge_sorted
from marey.stats.intervals import intersect, merge
small = merge(np.arange(0, 100, 10), np.full(10, 5))
assert "numba" not in sys.modules
large = merge(np.arange(0, 1_000_000, 10), np.full(100_000, 5))
assert "numba" in sys.modules
both = intersect(small, large)
assert both.start_ns.tolist() == small.start_ns.tolist()
assert both.end_ns.tolist() == small.end_ns.tolist()
print(len(large.start_ns))
"""


def test_a_kernel_is_compiled_only_for_large_input() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "100000"), done.stderr


def test_interpreted_and_compiled_kernels_agree() -> None:
    rng = np.random.default_rng(3)
    start = np.sort(rng.integers(0, 1000, 200))
    end = start + rng.integers(0, 9, 200)
    plain = _merge_sorted.function(start, end)
    fast = _merge_sorted.compile()(start, end)
    assert [p.tolist() for p in plain] == [f.tolist() for f in fast]
