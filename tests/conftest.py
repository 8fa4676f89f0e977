"""What every test may ask for: real programs, real data, and an honest count of skips."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from bench.chromium import FLAGS

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


@pytest.fixture(scope="session")
def browser(need_program: Callable[..., str], need_module: Callable[[str], Any]) -> Iterator[Any]:
    """One Chromium for all tests of a worker: Playwright cannot be started twice in a process."""
    chromium = need_program("chromium", "chromium-browser", "google-chrome")
    sync_api = need_module("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=os.environ.get("MAREY_CHROMIUM", chromium), args=FLAGS
        )
        yield launched
        launched.close()


# Whoever asks for one of these starts a program of its own.
REAL_FIXTURES = frozenset({"need_program"})
BROWSER_FIXTURES = frozenset({"window", "browser", "chromium"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in tests/real and tests/browser, so that `make test-fast` leaves it out."""
    for item in items:
        folders = set(item.path.relative_to(ROOT / "tests").parts[:-1])
        asked = set(getattr(item, "fixturenames", ()))
        if "browser" in folders or asked & BROWSER_FIXTURES:
            item.add_marker(pytest.mark.browser)
        if "real" in folders or asked & REAL_FIXTURES:
            item.add_marker(pytest.mark.real)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Set a test up without Playwright's event loop, unless it looks at a browser."""
    with _hide_running_loop(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Run a test without Playwright's event loop, unless it looks at a browser."""
    with _hide_running_loop(item):
        return (yield)


@contextmanager
def _hide_running_loop(item: pytest.Item) -> Iterator[None]:
    """Hide the loop of a browser that an earlier test of this worker opened.

    Playwright's loop counts as running in the main thread from its start to its end, so that
    ``asyncio.run`` would fail in every later test of the same worker.
    """
    loop = asyncio._get_running_loop()
    if loop is None or item.get_closest_marker("browser"):
        yield
        return
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


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
