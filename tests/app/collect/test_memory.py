from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_a_server_starts_without_what_only_diagnoses_need() -> None:
    """SciPy would be 60 MB of every server, also of one that nobody asks for a diagnosis."""
    program = (
        "import sys, marey.cli.site.server_process, marey.api.application; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # (Numba looks whether there is a SciPy; that alone is small.)
    heavy = {f"scipy.{part}" for part in ("cluster", "sparse", "spatial", "special", "stats")}
    assert not heavy & set(done.stdout.split())
