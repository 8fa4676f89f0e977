"""The Marey view and the execution flow, in CPU time and ratios within one run.

Windows of 1,024 and 16,384 ranks on the server; frames in Chromium beside all intervals as WebGL
triangles; layouts beside d3-dag.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.chromium import FLAGS
from bench.report import Results
from bench.web_overview import built_page
from marey.api.compression import LEVELS, Encoding, compress
from marey.trace.analysis import analyse
from marey.trace.results import VerdictKind
from marey.trace.run.trace_run import open_run
from marey.trace.synthetic import Layout, Scenario, make_run
from marey.trace.synthetic.kineto import write_kineto
from marey.trace.views.cells import Cells, CellWindow, draw_cells
from marey.trace.views.making.view_writer import write_views
from marey.trace.views.step_files import BAND, StepIndex, StepView
from marey.trace.views.surfaces import SURFACE
from marey.trace.views.view_files import RunViews, StepPictures
from marey.trace.views.view_kinds import ViewKind

RANKS, MANY_RANKS, OPERATORS, STAGES = 1024, 16_384, 2000, 8
WIDTH, HEIGHT = 1200, 800
SHARES = (1.0, 0.1, 0.01, 0.001)
# Start and end in ticks, kind: what a page without cells would have to be sent.
RAW_BYTES = 4 + 4 + 1
FRAMES = 10
# Nodes of the graphs that are laid out, and how often each time: CPU is counted in steps of 10 ms.
SIZES = (10_000, 50_000)
LAYOUTS, ROUNDS = 10, 6


def main() -> int:
    """Every line of the issue's speed section."""
    results = Results()
    costs = {ranks: measure_windows(results, ranks) for ranks in (RANKS, MANY_RANKS)}
    report_growth(results, costs)
    report_opening(results)
    report_browser(results)
    return results.missed


@dataclass
class Ordered(StepPictures):
    """A step whose ranks stand in the order of their numbers."""

    def order(self, name: str) -> NDArray[np.int64]:
        return np.arange(len(self.view.index.ranks), dtype=np.int64)


def make_pictures(ranks: int) -> Ordered:
    """Return a step of 2,000 operators a rank, a collective every eighth; 1 % of ranks are slow."""
    rng = np.random.default_rng(3)
    lasts = rng.integers(20_000, 80_000, OPERATORS)
    is_collective = np.arange(OPERATORS) % 8 == 7
    pieces = np.zeros((ranks, OPERATORS), SURFACE)
    slow = rng.random(ranks) < 0.01
    for rank in range(ranks):
        own = np.where(is_collective, 0, lasts * (1.6 if slow[rank] else 1.0))
        own = own * rng.uniform(0.98, 1.02, OPERATORS)
        # Everybody meets at the end of each collective: the slow ranks' compute and its transfer.
        bound = np.cumsum(np.where(is_collective, lasts, lasts * 1.65).reshape(-1, 8).sum(1))
        begin = np.concatenate([[0], bound[:-1]])
        starts = begin[:, None] + np.cumsum(own.reshape(-1, 8), axis=1) - own.reshape(-1, 8)
        ends = starts + own.reshape(-1, 8)
        ends[:, 7] = bound
        pieces["start"][rank] = starts.reshape(-1)
        pieces["end"][rank] = ends.reshape(-1)
        pieces["kind"][rank] = np.where(is_collective, ViewKind.COLLECTIVE, ViewKind.COMPUTE)
    index = StepIndex(
        step=0,
        start_ns=0,
        end_ns=int(pieces["end"].max()),
        unit_ns=1,
        ranks=list(range(ranks)),
        stages=(np.arange(ranks) * STAGES // ranks).tolist(),
        band_offsets=[0] * (ranks + 1),
        surface_offsets=list(range(0, ranks * OPERATORS + 1, OPERATORS)),
    )
    view = StepView(index, np.empty(0, BAND), pieces.reshape(-1))
    return Ordered(RunViews(Path()), view)


def measure_cpu(work: Callable[[], object], repeat: int = 5) -> float:
    """Return the least CPU milliseconds of a few runs; the first only warms."""
    work()
    taken = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        taken.append((time.process_time() - start) * 1e3)
    return min(taken)


def measure_windows(results: Results, ranks: int) -> dict[float, float]:
    """Return the CPU of windows of each share; tell the dearest, its bytes, the pyramid's gain."""
    pictures = make_pictures(ranks)
    windows = {share: make_window(pictures.view.span, share) for share in SHARES}
    start = time.process_time()
    pictures.cells("stage", 0, ranks, windows[1.0])
    built = time.process_time() - start

    def draw(window: CellWindow) -> Cells:
        return pictures.cells("stage", 0, ranks, window)

    def measure(window: CellWindow) -> float:
        return measure_cpu(lambda: draw(window).encode(1))

    costs = {share: measure(window) for share, window in windows.items()}
    size = f"{ranks:,} ranks × {OPERATORS:,} operators, {WIDTH} × {HEIGHT}"
    reported = ", ".join(f"{share:g}: {cost:.1f}" for share, cost in costs.items())
    results.line(
        "server CPU per window in ms, by share of the step",
        f"{reported}; opened and grid made in {built:.1f} s",
        size=size,
        at_10x="the grid does not grow",
    )
    if ranks == RANKS:
        report_limit(results, "dearest window on the server", max(costs.values()), size)
        report_bytes(results, draw(windows[1.0]), ranks, size)
    else:
        surfaces, places = pictures.view.surfaces, np.arange(ranks)
        plain = measure_cpu(lambda: draw_cells(surfaces, places, windows[1.0]), 2)
        results.against(
            "full window from the pyramid",
            ratio=plain / costs[1.0],
            target=10,
            rival=f"from the intervals ({plain:.0f} ms against {costs[1.0]:.1f} ms)",
            size=size,
            at_10x="the intervals grow 10×, the grid does not",
        )
    return costs


def make_window(span: int, share: float) -> CellWindow:
    start = int(span * 0.4 * (1 - share))
    return CellWindow(start, start + int(span * share), WIDTH, HEIGHT)


def report_limit(results: Results, what: str, measured_ms: float, size: str) -> None:
    results.against(
        what,
        ratio=measured_ms / 50,
        target=1,
        rival=f"its limit of 50 ms ({measured_ms:.1f} ms)",
        size=size,
        at_10x="pixels do not grow",
        higher_is_better=False,
    )


def report_bytes(results: Results, cells: Cells, ranks: int, size: str) -> None:
    packed = compress(cells.encode(1), Encoding.GZIP, LEVELS[Encoding.GZIP])
    sent, raw = len(packed), ranks * OPERATORS * RAW_BYTES
    results.against(
        "bytes of a full window",
        ratio=sent / raw,
        target=0.1,
        rival=f"the raw columns ({sent / 1e3:.0f} kB against {raw / 1e6:.1f} MB)",
        size=size,
        at_10x="the window stays, the columns grow 10×",
        higher_is_better=False,
    )


def report_growth(results: Results, costs: dict[int, dict[float, float]]) -> None:
    """16 times the ranks against the same windows of 1,024: each, and all together."""
    few, many = costs[RANKS], costs[MANY_RANKS]
    for share in SHARES:
        results.against(
            f"window of {share:g} of the step at {MANY_RANKS:,} ranks",
            ratio=many[share] / few[share],
            target=1.5,
            rival=f"at {RANKS:,} ranks ({many[share]:.1f} ms against {few[share]:.1f} ms)",
            size=f"{OPERATORS:,} operators a rank",
            at_10x="the grid does not grow",
            higher_is_better=False,
        )


def report_opening(results: Results) -> None:
    """A converted step opened and drawn against its rank files read again."""
    layout = Layout(data=8, tensor=2, pipeline=2, micro_batches=4, layers=8)
    made = make_run(Scenario(layout, VerdictKind.SLOW_WORKER, steps=2, seed=1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_kineto(made.run, folder / "files")
        run = open_run(folder / "files", cache=folder / "cache")
        write_views(run, analyse(run), folder / "views")
        number = iter(range(100))

        def read() -> None:
            # In this process, so that its CPU is counted.
            with ThreadPoolExecutor(1) as here:
                cache = folder / f"cache{next(number)}"
                again = open_run(folder / "files", cache=cache, executor=here)
                for rank in again.ranks:
                    again.events(rank)

        def reopen() -> None:
            pictures = RunViews(folder / "views").step(1)
            pictures.cells("stage", 0, layout.world, make_window(pictures.view.span, 1.0))

        files, step = measure_cpu(read, 2), measure_cpu(reopen, 3)
    results.against(
        "opening a converted step and drawing it",
        ratio=files / step,
        target=10,
        rival=f"reading its rank files ({files:.0f} ms against {step:.1f} ms)",
        size=f"{layout.world} ranks, 2 steps",
        at_10x="the files grow 10×; the picture does not",
    )


class Page:
    """The bench's page, and what its browser's processes cost."""

    def __init__(self, browser: Any, url: str) -> None:
        self._session = browser.new_browser_cdp_session()
        self._page = browser.new_page(viewport={"width": 1280, "height": 900})
        self._page.set_default_timeout(600_000)
        self._page.goto(f"{url}/marey.html")
        self._page.wait_for_function("window.bench")

    def call(self, method: str, *values: Any) -> Any:
        return self._page.evaluate(
            "([name, ...args]) => window.bench[name](...args)", [method, *values]
        )

    def cpu_ms(self) -> float:
        found = self._session.send("SystemInfo.getProcessInfo")["processInfo"]
        return 1e3 * sum(float(process["cpuTime"]) for process in found)

    def cost_ms(self, method: str, count: int, *values: Any) -> float:
        """CPU of all processes of the browser each time; the first only warms."""
        self.call(method, 1, *values)
        before = self.cpu_ms()
        self.call(method, count, *values)
        return (self.cpu_ms() - before) / count


def report_browser(results: Results) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, built_page() as url:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        report_frames(results, Page(browser, url))
        report_layouts(results, Page(browser, url))
        browser.close()


def report_frames(results: Results, page: Page) -> None:
    """Frames of cells and bands against their limit and against all intervals as triangles."""
    page.call("makeStep", RANKS, OPERATORS)
    size = f"{RANKS:,} ranks × {OPERATORS:,} operators, {WIDTH} × {HEIGHT}"
    frames = {}
    for kind in ("cells", "bands"):
        for share in (1.0, 0.1, 0.01):
            page.call("prepare", kind, share)
            page.call("draw", 3)
            frames[kind, share] = min(float(page.call("draw", FRAMES)) for _ in range(3))
    reported = ", ".join(f"{kind} {share:g}: {ms:.1f}" for (kind, share), ms in frames.items())
    results.line("script per frame in ms", reported, size=size, at_10x="pixels do not grow")
    report_limit(results, "dearest frame, script", max(frames.values()), size)
    page.call("prepare", "cells", 1.0)
    own = page.cost_ms("draw", 40)
    quads = page.call("prepareTriangles")
    plain = page.cost_ms("drawTriangles", 3)
    results.against(
        "frame of the whole step",
        ratio=plain / own,
        target=100,
        rival=f"{quads:,} quadrilaterals in WebGL ({plain:.0f} ms against {own:.1f} ms of CPU)",
        size=size,
        at_10x="triangles grow 10×, pixels do not",
    )


def report_layouts(results: Results, page: Page) -> None:
    """Layouts of 10,000 and 50,000 nodes in a worker, and d3-dag's of the same 10,000."""
    digests = page.call("layOut", LAYOUTS, SIZES[0]) + page.call("layOutFresh", 2, SIZES[0])
    same = len(set(digests)) == 1
    page.call("layOut", LAYOUTS, SIZES[1])
    # Both are warm now; in turns, so that both have the same of what else the machine does.
    warm = {size: float("inf") for size in SIZES}
    fresh = dict(warm)
    for _ in range(ROUNDS):
        for size in SIZES:
            warm[size] = min(warm[size], page.cost_ms("layOut", LAYOUTS, size))
            fresh[size] = min(fresh[size], page.cost_ms("layOutFresh", LAYOUTS, size))
    rival = page.cost_ms("layOutRival", 2, SIZES[0])
    results.line(
        "the same graph always gets the same picture", str(same), size="10,000 nodes", at_10x="same"
    )
    results.missed += not same
    results.against(
        "layout of the flow in a worker that was just started, CPU",
        ratio=rival / fresh[SIZES[0]],
        target=20,
        rival=f"d3-dag, its cheapest operators ({rival:.0f} ms against {fresh[SIZES[0]]:.0f} ms)",
        size="10,000 nodes in 8 lanes",
        at_10x="linear in nodes and dummies",
    )
    for state, costs in (("is warm", warm), ("was just started", fresh)):
        small, large = (costs[size] for size in SIZES)
        results.against(
            f"layout of 50,000 nodes in a worker that {state}, CPU",
            ratio=large / small,
            target=3,
            rival=f"that of 10,000 ({large:.1f} ms against {small:.1f} ms)",
            size="50,000 nodes in 8 lanes",
            at_10x="fewer sweeps over larger graphs",
            higher_is_better=False,
        )


if __name__ == "__main__":
    sys.exit(main())
