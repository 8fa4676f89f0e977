"""The command as its own process: it neither compiles nor imports pandas for a small trace."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from marey.cli import main
code = main()
assert "numba" not in sys.modules
assert "pandas" not in sys.modules
sys.exit(code)
"""


def test_a_small_trace_needs_neither_a_compiler_nor_pandas(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 50}
    events = [kernel | {"ts": 100 * n} for n in range(5)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    words = ["trace", "report", str(tmp_path / "trace.json"), "--cache", str(tmp_path / "cache")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "NOTHING" in done.stdout or "IDLE" in done.stdout
