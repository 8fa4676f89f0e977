"""kill -9 at any moment loses at most the tick in flight."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROUNDS = 9


@pytest.mark.parametrize("through", ["plain", "journaled"])
def test_kill_9_during_writes_and_rewrites_loses_and_doubles_nothing(
    tmp_path: Path, through: str
) -> None:
    script = Path(__file__).with_name("kill_rounds.py")
    ran = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "store.marey"), str(ROUNDS), "11", through],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = re.match(rf"{ROUNDS} kills, (\d+) during a rewrite, (\d+) ticks whole", ran.stdout)
    assert found is not None, ran.stdout
    assert int(found[1]) >= ROUNDS // 3, "no kill hit a rewrite; the test shows too little"
