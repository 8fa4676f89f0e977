"""What every test may ask for: real programs, real data, and an honest count of skips."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
NO_DATA = "real data not found through MAREY_DATA"

# The same examples on every machine and no judgement of its speed; MAREY_EXPLORE=1 draws new ones
# (with ``--hypothesis-seed`` to name them), which is how a new counterexample is looked for.
settings.register_profile(
    "marey",
    deadline=None,
    derandomize=not os.environ.get("MAREY_EXPLORE"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("marey")


def find_program(*names: str) -> str | None:
    """The path of the first of these programs that is installed."""
    for name in names:
        path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")
        if path:
            return path
    return None


@pytest.fixture(scope="session")
def need_program() -> Callable[..., str]:
    """The path of a real program; skips where it is missing, fails in CI."""

    def need(*names: str) -> str:
        path = find_program(*names)
        if path is None:
            message = f"{' or '.join(names)} is not installed (see scripts/ci-packages)"
            if IN_CI:
                pytest.fail(message)
            pytest.skip(message)
        return path

    return need


@pytest.fixture(scope="session")
def need_module() -> Callable[[str], object]:
    """An optional Python package; skips where it is missing, fails in CI."""

    def need(name: str) -> object:
        import importlib

        try:
            return importlib.import_module(name)
        except ImportError:
            if IN_CI:
                pytest.fail(f"the Python package {name} is not installed")
            pytest.skip(f"the Python package {name} is not installed")

    return need


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data; its absence is the one skip that CI permits."""
    path = Path(os.environ.get("MAREY_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"{NO_DATA} (looked at {path.name})")
    return path


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the count of skips, and in CI fail the run for any that is not for missing data."""
    skipped = terminalreporter.stats.get("skipped", [])
    terminalreporter.write_line(f"skips: {len(skipped)}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI a skip for any other reason than missing data is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not IN_CI or reporter is None or hasattr(session.config, "workerinput"):
        return
    others = [r for r in reporter.stats.get("skipped", []) if NO_DATA not in str(r.longrepr)]
    if others:
        for report in others:
            reporter.write_line(f"skip not permitted in CI: {report.nodeid}: {report.longrepr}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
