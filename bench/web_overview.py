"""The overview in Chromium at 100,000 units, beside a bare WebGL2 point cloud in the same page."""

from __future__ import annotations

import functools
import gzip
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.chromium import FLAGS
from bench.report import Results

ROOT = Path(__file__).resolve().parent.parent
UNITS = 100_000
PAINT_GPUS = 10_000


def main() -> int:
    """Every line of the issue's speed section that a browser can show."""
    from playwright.sync_api import sync_playwright

    results = Results()
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        with built_page() as url:
            figures = measure(browser, f"{url}/overview.html?gpus={UNITS}")
        report_frames(results, figures)
        report_paint(results, browser)
        browser.close()
    report_size(results)
    return results.missed


@contextmanager
def built_page() -> Iterator[str]:
    """The bench's page, built and served on loopback."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npx", "--no-install", "vite", "build", "--config", "bench/vite.config.ts"]
        environment = {**os.environ, "BENCH_OUT": folder}
        subprocess.run(
            command, cwd=ROOT / "web", env=environment, check=True, stdout=subprocess.DEVNULL
        )
        handler = functools.partial(Quiet, directory=folder)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *args: object) -> None:
        return


def measure(browser: Any, url: str) -> dict[str, Any]:
    """The figures that the page wrote down."""
    page = browser.new_page(viewport={"width": 1440, "height": 800})
    page.goto(url)
    page.wait_for_function("window.results", timeout=300_000)
    figures: dict[str, Any] = page.evaluate("window.results")
    page.close()
    if "error" in figures:
        raise RuntimeError(figures["error"])
    return figures


def report_frames(results: Results, figures: dict[str, Any]) -> None:
    """Frames against bare frames drawn between them; the rest against its limit."""
    size = f"{UNITS:,} units"
    linear = "about 10× of both: points and bare points alike"
    bare = figures["bareMs"]
    for kind, key, what, target in (
        ("pan", "pan", "pan frame", 1.5),
        ("zoom", "zoom", "zoom frame", 1.5),
        ("transition", "move", "transition frame", 1.5),
        ("panRules", "panRules", "pan frame, 8 rules marked", 2),
        ("zoomRules", "zoomRules", "zoom frame, 8 rules marked", 2),
    ):
        results.against(
            what,
            ratio=figures[f"{kind}FrameMs"] / bare[key],
            target=target,
            rival="a bare point cloud's frame",
            size=size,
            at_10x=linear,
            higher_is_better=False,
        )
    results.against(
        "full tick applied and drawn (12 metrics)",
        ratio=figures["tick12Ms"] / bare["tick"],
        target=2,
        rival="a bare point cloud's frame",
        size=size,
        at_10x=linear,
        higher_is_better=False,
    )
    script = max(figures[f"script{kind}Ms"] for kind in ("Pan", "Zoom", "Transition"))
    ruled = max(figures["scriptPanRulesMs"], figures["scriptZoomRulesMs"])
    limits = (
        ("main-thread script per frame", script, 2.0, "labels are bounded: the same"),
        ("the same, 8 rules marked", ruled, 4.0, "marks are bounded: the same"),
        ("8 new verdicts counted and painted", figures["countRulesMs"], 100.0, "about 10×"),
        ("hover pick", figures["pickMs"], 1.0, "grows with siblings: about 10×"),
        ("regroup + layout, physical", figures["layoutMs"]["physical"], 80.0, "about 10×"),
        ("regroup + layout, by workload", figures["layoutMs"]["workloads"], 80.0, "about 12×"),
        ("regroup + layout, metric in bins", figures["layoutMs"]["bins"], 80.0, "about 10×"),
    )
    for what, measured, limit, at_10x in limits:
        results.against(
            what,
            ratio=measured / limit,
            target=1,
            rival=f"its limit of {limit:g} ms ({measured:.3g} ms)",
            size=size,
            at_10x=at_10x,
            higher_is_better=False,
        )


def report_paint(results: Results, browser: Any) -> None:
    """First picture of a large cluster against the same app with an empty one."""
    with demo(PAINT_GPUS) as large, empty_server() as empty:
        # The first pair warms the servers' caches.
        pairs = [(full_paint(browser, large), empty_paint(browser, empty)) for _ in range(4)][1:]
    full_s, empty_s = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
    results.against(
        "first meaningful paint",
        ratio=full_s / empty_s,
        target=3,
        rival=f"the same app with an empty cluster ({full_s:.2f} s against {empty_s:.2f} s)",
        size=f"{PAINT_GPUS:,} GPUs",
        at_10x="the snapshot and its decoding grow 10×",
        higher_is_better=False,
    )


def full_paint(browser: Any, url: str) -> float:
    """Seconds from the request to the picture of the cluster."""
    return first_paint(browser, url, "[data-testid=canvas][data-layout-ms]")


def empty_paint(browser: Any, url: str) -> float:
    """Seconds from the request to the app around an empty canvas."""
    return first_paint(browser, url, ".empty-state")


def first_paint(browser: Any, url: str, sign: str) -> float:
    """Seconds from the request until something is on screen."""
    context = browser.new_context(viewport={"width": 1440, "height": 800})
    page = context.new_page()
    start = time.perf_counter()
    page.goto(f"{url}/?view=physical", wait_until="commit")
    page.wait_for_selector(sign, timeout=60_000)
    taken = time.perf_counter() - start
    context.close()
    return taken


@contextmanager
def demo(gpus: int) -> Iterator[str]:
    """A demo of this size with little history."""
    with served("demo", "--gpus", str(gpus), "--hours", "1", "--speed", "1", "--port", "0") as url:
        yield url


@contextmanager
def empty_server() -> Iterator[str]:
    """A server whose cluster has nothing in it."""
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder) / "marey.toml"
        configuration.write_text(f'[store]\npath = "{folder}/empty.duckdb"\n[server]\nport = 0\n')
        with served("serve", "--config", str(configuration)) as url:
            yield url


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """A running `marey` command; its first line is its URL."""
    command = [str(Path(sys.executable).with_name("marey")), *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    try:
        if not url.startswith("http"):
            raise RuntimeError(f"marey {arguments[0]} printed {url!r} instead of its URL")
        yield url
    finally:
        process.terminate()
        process.wait(60)


def report_size(results: Results) -> None:
    """The whole app, gzipped."""
    assets = (ROOT / "src/marey/api/web").rglob("*")
    size = sum(len(gzip.compress(path.read_bytes(), 9)) for path in assets if path.is_file())
    results.against(
        "the app, gzipped",
        ratio=size / 300e3,
        target=1,
        rival=f"its limit of 300 KB ({size / 1e3:.0f} KB)",
        size="every file of the bundle",
        at_10x="does not grow with the cluster",
        higher_is_better=False,
    )


if __name__ == "__main__":
    sys.exit(main())
