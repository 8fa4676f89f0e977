"""Help and mistakes are answered without loading the server, the database or the compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("fastapi", "uvicorn", "duckdb", "numba", "pyarrow", "scipy")


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom marey.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stderr.strip() == "[]"
    assert result.stdout
