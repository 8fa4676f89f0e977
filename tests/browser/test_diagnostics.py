"""Diagnostics of one workload in a real browser: the paper's case 7.2, and difficult workloads."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from marey.model.faults import FaultKind
from marey.sim import SimConfig, Simulation
from marey.store.embedded.embedded_store import open_store
from tests.browser.conftest import Demo, Overview, open_window
from tests.browser.test_overview_live import CONTRAST


@dataclass(frozen=True)
class Site:
    """A served store in which one 64-GPU workload loads the first GPU of every node most."""

    server: Demo
    biased: str
    guilty: frozenset[str]
    alone: str
    waiting: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    config = SimConfig(gpus=512, seed=72, load=0.0, faults=0.0, warmup_ms=0, maintenance=False)
    simulation = Simulation(config)
    hours = {"duration_s": 3 * 3600.0, "time_limit_s": 6 * 3600.0}
    biased = simulation.submit(gpus=64, fault=FaultKind.BIASED_LOAD.value, user=3, **hours)
    alone = simulation.submit(gpus=1, user=4, **hours)
    # More than a user may hold: they wait, the last of them for sure.
    waiting = [simulation.submit(gpus=64, user=3, **hours) for _ in range(6)][-1]
    with open_store(folder / "site.duckdb") as store:
        for observation in simulation.history(1.2):
            store.apply(observation)
            store.append(observation.samples)
    (truth,) = [truth for truth in simulation.truth() if truth.workload == biased]
    (folder / "marey.toml").write_text('[store]\npath = "site.duckdb"\n', encoding="utf-8")
    server = serve(folder)
    yield Site(server, biased, frozenset(truth.gpus), alone, waiting)
    server.stop()


def serve(folder: Path) -> Demo:
    """A server over the folder's store, with no source: the picture stands still."""
    command = [str(Path(sys.executable).with_name("marey")), "serve"]
    process = subprocess.Popen(
        [*command, "--config", "marey.toml", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=folder,
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert url.startswith("http"), f"marey serve printed {url!r}"
    return Demo(url, process, folder / "site.duckdb")


class Diagnostics:
    """What a person does and sees on the page, in words."""

    def __init__(self, window: Overview) -> None:
        self.window = window
        self.page = window.page

    def open(self, workload: str, query: str = "") -> Diagnostics:
        self.page.goto(f"{self.window.url}/workload?id={workload}{query}")
        self.wait_until_drawn()
        return self

    def wait_until_drawn(self) -> None:
        """Wait until the small multiples show what was asked for."""
        self.page.wait_for_selector("[data-testid=gpus-part][data-busy='0']")
        self.page.wait_for_selector("[data-testid=multiples]")

    def clusters(self) -> list[frozenset[str]]:
        listed = self.page.locator("[data-testid=cluster]")
        texts = [listed.nth(i).get_attribute("data-gpus") for i in range(listed.count())]
        return [frozenset((text or "").split(",")) for text in texts]

    def wait_separated(self, guilty: frozenset[str], what: str) -> None:
        self.window.wait_until(
            lambda: len(self.clusters()) == 2 and self.clusters()[1] == guilty, what
        )

    def lines(self, metric: str = "util") -> tuple[int, int]:
        """GPUs drawn as lines, and moments lit, on the timeline of a metric."""
        chart = self.page.locator(f"[data-testid=timeline][data-metric={metric}]")
        lines, lit = chart.get_attribute("data-lines"), chart.get_attribute("data-lit")
        return int(lines or 0), int(lit or 0)

    def drag(self, selector: str, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag over an element, from and to shares of its width and height."""
        element = self.page.locator(selector).first
        element.scroll_into_view_if_needed()
        box = element.bounding_box()
        at = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (begin, end)]
        self.page.mouse.move(*at[0])
        self.page.mouse.down()
        self.page.mouse.move(*at[1], steps=5)
        self.page.mouse.up()


@pytest.fixture
def window(browser: Any, site: Site) -> Iterator[Overview]:
    yield from open_window(browser, site.server, reduced_motion="reduce")


@pytest.fixture
def diagnostics(window: Overview) -> Diagnostics:
    return Diagnostics(window)


def test_case_7_2_biased_load_from_the_overview_to_the_guilty_gpus(
    diagnostics: Diagnostics, site: Site
) -> None:
    # From the overview: a rule marks the workload; a GPU of it, then one click.
    page = diagnostics.page
    diagnostics.window.open("?view=physical")
    mark = page.locator("[data-testid^=chip-rule]").filter(has_text="First GPU of each node")
    diagnostics.window.wait_until(lambda: mark.count() == 1, "the mark on the overview")
    diagnostics.window.click_unit(sorted(site.guilty)[0])
    page.get_by_role("link", name="Diagnose").click()
    diagnostics.wait_until_drawn()
    # The verdict in words, and the clusters that separate exactly the first GPU of every node.
    assert page.get_attribute("[data-testid=finding]", "data-kind") == "biased_load"
    diagnostics.wait_separated(site.guilty, "the guilty GPUs in a cluster of their own")
    assert "the first GPU of every node" in page.inner_text("[data-testid=clusters]")
    assert page.get_attribute("[data-testid=multiples]", "data-count") == "64"
    # Brush the outliers at high utilization: their GPUs and their times light up.
    page.wait_for_selector("[data-testid=outlier-count]")
    diagnostics.drag("[data-testid=scatter]", (0.86, 0.03), (0.985, 0.84))
    diagnostics.window.wait_until(
        lambda: diagnostics.lines()[0] == 8 and diagnostics.lines()[1] > 0, "lines and lit times"
    )
    # The brush stays where it was drawn and says what is in it.
    said = page.get_by_test_id("brushed").inner_text()
    assert re.search(r"\d+ outliers? on 8 GPUs selected", said), said
    assert page.get_by_test_id("brush").bounding_box()["width"] > 20
    # Zoom on the timeline: the histograms of the window still cluster alike.
    diagnostics.drag("[data-testid=timeline] .u-over", (0.4, 0.5), (0.75, 0.5))
    page.wait_for_selector("[data-testid=window]")
    diagnostics.wait_until_drawn()
    diagnostics.wait_separated(site.guilty, "the same clusters in the window")
    # Timelines instead of histograms: the same GPUs again.
    page.get_by_label("Group by similarity").select_option("euclidean")
    diagnostics.wait_until_drawn()
    diagnostics.wait_separated(site.guilty, "the same clusters by timeline")
    assert page.get_attribute("[data-testid=multiples]", "data-plot") == "timeline"
    # The address shows the same to a colleague.
    address = page.url
    page.goto(address)
    diagnostics.wait_until_drawn()
    assert page.locator("[data-testid=window]").count() == 1
    diagnostics.wait_separated(site.guilty, "the same clusters for a colleague")


def test_gpus_are_selected_by_click_range_node_and_keyboard(
    diagnostics: Diagnostics, site: Site
) -> None:
    page = diagnostics.open(site.biased).page
    multiples = page.locator("[data-testid=multiples]")
    # The first box: its heading is 15 px high, plots of 78 px with gaps of 3 px follow below.
    multiples.click(position={"x": 30, "y": 30})
    diagnostics.window.wait_until(lambda: diagnostics.lines()[0] == 1, "one GPU")
    multiples.click(position={"x": 30 + 3 * 81, "y": 30}, modifiers=["Shift"])
    diagnostics.window.wait_until(lambda: diagnostics.lines()[0] == 4, "a range of four")
    multiples.click(position={"x": 20, "y": 6})
    diagnostics.window.wait_until(lambda: diagnostics.lines()[0] == 8, "a whole node")
    multiples.focus()
    page.keyboard.press("Escape")
    diagnostics.window.wait_until(lambda: diagnostics.lines()[0] == 0, "nothing")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    diagnostics.window.wait_until(lambda: diagnostics.lines()[0] == 1, "one GPU by keyboard")


def test_a_plot_is_named_by_its_gpu_and_a_brush_is_given_up(
    diagnostics: Diagnostics, site: Site
) -> None:
    page = diagnostics.open(site.biased).page
    multiples = page.locator("[data-testid=multiples]")
    multiples.hover(position={"x": 30, "y": 30})
    first = sorted(site.guilty)[0]
    page.get_by_test_id("gpus-part").get_by_text(first).first.wait_for()
    page.wait_for_selector("[data-testid=outlier-count]")
    diagnostics.drag("[data-testid=scatter]", (0.86, 0.03), (0.985, 0.84))
    page.get_by_test_id("brushed").wait_for()
    page.get_by_test_id("brushed").get_by_role("button", name="Clear").click()
    page.get_by_test_id("brush").wait_for(state="detached")
    diagnostics.window.wait_until(lambda: diagnostics.lines() == (0, 0), "nothing lit")


def test_the_number_of_clusters_follows_the_slider(diagnostics: Diagnostics, site: Site) -> None:
    page = diagnostics.open(site.biased).page
    page.get_by_label("Clusters (or click the dendrogram)").fill("4")
    diagnostics.window.wait_until(lambda: len(diagnostics.clusters()) == 4, "four clusters")
    page.get_by_role("button", name="choose automatically").click()
    diagnostics.wait_separated(site.guilty, "two clusters again")


def test_two_windows_of_a_workload_are_compared(diagnostics: Diagnostics, site: Site) -> None:
    page = diagnostics.open(site.biased).page
    diagnostics.page.wait_for_selector("[data-testid=timeline] .u-over")
    diagnostics.drag("[data-testid=timeline] .u-over", (0.2, 0.5), (0.4, 0.5))
    page.wait_for_selector("[data-testid=window]")
    page.get_by_role("button", name="Keep this window for comparison").click()
    page.get_by_test_id("window").click()
    page.wait_for_selector("[data-testid=sides] tbody tr")
    assert "entire run" in page.inner_text("[data-testid=sides]")


def test_one_gpu_says_that_there_is_nothing_to_compare(
    diagnostics: Diagnostics, site: Site
) -> None:
    page = diagnostics.open(site.alone).page
    assert "only one GPU" in page.inner_text("[data-testid=one-gpu]")
    assert page.get_attribute("[data-testid=multiples]", "data-count") == "1"


@pytest.mark.parametrize("which", ["unknown", "none"])
def test_a_workload_without_a_picture_gets_a_clear_page(
    diagnostics: Diagnostics, site: Site, which: str
) -> None:
    workload, said = {
        "unknown": ("<b>no</b>", "There is no workload '<b>no</b>'"),
        "none": ("", "No workload selected"),
    }[which]
    diagnostics.window.errors.permit("status of 404 ")
    diagnostics.page.goto(f"{site.server.url}/workload?id={workload}")
    diagnostics.page.wait_for_selector("[data-testid=notice]")
    assert said in diagnostics.page.inner_text("[data-testid=notice]")


def test_a_waiting_workload_says_why_it_waits(diagnostics: Diagnostics, site: Site) -> None:
    page = diagnostics.page
    page.goto(f"{site.server.url}/workload?id={site.waiting}")
    page.wait_for_selector("[data-testid=finding]")
    assert page.get_attribute("[data-testid=finding]", "data-kind") in ("waiting", "blocked")
    assert page.query_selector("[data-testid=notice]") is None


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_text_has_the_contrast_that_aa_asks_for(
    browser: Any, site: Site, theme: str, tmp_path: Path
) -> None:
    for window in open_window(browser, site.server, color_scheme=theme, reduced_motion="reduce"):
        page = Diagnostics(window).open(site.biased).page
        page.wait_for_selector("[data-testid=peers]")
        assert page.evaluate(CONTRAST) == []
