"""What set-up compiles is what a first demo needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
LARGER = """
import sys
from msgspec.structs import replace
sys.path.insert(0, sys.argv[1])
import compile_kernels
compile_kernels.CLUSTER = replace(compile_kernels.CLUSTER, gpus=256, history_hours=5.0)
compile_kernels.main()
"""


@pytest.mark.slow
def test_a_larger_demo_compiles_nothing_more(tmp_path: Path) -> None:
    def run(*command: str) -> set[str]:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        subprocess.run([sys.executable, *command], env=environment, check=True, timeout=600)
        return {path.name for path in tmp_path.rglob("*.nbc")}

    compiled = run(str(SCRIPTS / "compile_kernels.py"))
    assert len(compiled) > 20
    assert run("-c", LARGER, str(SCRIPTS)) == compiled
