"""The overview stays calm while jobs come and go, and what is written on it can be read."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.conftest import GPUS, Demo, Overview

# What survivors may move per change, as a share of the canvas's width, and how many are watched.
MOST_MOVED = 0.02
CHANGES = 4
# A tick is a second: at this speed somebody comes or goes with nearly every picture.
SPEED = 120

# Where each unit stands, by the GPU and the job that holds it, and the boxes of the partitions.
SCREEN = """() => {
  const places = window.marey.places();
  const rows = window.marey.rows(["gpu", "workload"]);
  const width = document.querySelector("[data-testid=canvas]").clientWidth;
  const units = {};
  rows.forEach(([gpu, workload], i) => {
    if (gpu) units[`${gpu} ${workload}`] = [places[i][0] / width, places[i][1] / width];
  });
  // What waits has partitions of the same names as the GPUs.
  const pools = window.marey.groups(1);
  const groups = window.marey.groups(2).map(({ name, x, y, w, h }) => {
    const pool = pools.find((one) => one.x <= x && x + w <= one.x + one.w + 1e-6);
    return { name: `${name} of ${pool?.name}`, x, y, w, h };
  });
  return { units, groups, camera: window.marey.camera() };
}"""


@pytest.fixture
def busy(demo: Demo) -> Iterator[Demo]:
    """The demo lives faster meanwhile."""
    before = demo.get("/simulation")["speed"]
    demo.put("/simulation", {"speed": SPEED})
    yield demo
    demo.put("/simulation", {"speed": before})


def list_sides(groups: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """Return which partition is left of which, and which above which."""
    found = set()
    for one in groups:
        for other in groups:
            if one["x"] + one["w"] <= other["x"] + 1e-6:
                found.add((one["name"], "left of", other["name"]))
            if one["y"] + one["h"] <= other["y"] + 1e-6:
                found.add((one["name"], "above", other["name"]))
    return found


def measure_move(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Return the mean move of the units that stayed where they belong."""
    both = before["units"].keys() & after["units"].keys()
    assert len(both) > 0.5 * GPUS
    moves = (math.dist(before["units"][who], after["units"][who]) for who in both)
    return sum(moves) / len(both)


def test_groups_and_units_keep_their_places_while_jobs_come_and_go(
    overview: Overview, busy: Demo
) -> None:
    page = overview.open().page
    seen = [page.evaluate(SCREEN)]

    def is_changed() -> bool:
        now = page.evaluate(SCREEN)
        if now["units"].keys() != seen[-1]["units"].keys():
            seen.append(now)
        return len(seen) > CHANGES

    overview.wait_until(is_changed, "jobs to come and go")
    pairs = list(itertools.pairwise(seen))
    moves = [measure_move(before, after) for before, after in pairs]
    assert sum(moves) / len(moves) <= MOST_MOVED, moves
    for before, after in pairs:
        shared = {group["name"] for group in before["groups"]}
        shared &= {group["name"] for group in after["groups"]}
        sides = [
            {(a, how, b) for a, how, b in list_sides(one["groups"]) if {a, b} <= shared}
            for one in (before, after)
        ]
        swapped = {(a, how, b) for a, how, b in sides[0] if (b, how, a) in sides[1]}
        assert swapped == set(), "no partition changes sides by itself"
    # However much the picture grew meanwhile: what was fitted still is.
    overview.hold()
    fitted = page.evaluate("window.marey.camera()")
    page.get_by_role("button", name="Fit to view").click()
    overview.still()
    assert page.evaluate("window.marey.camera()") == pytest.approx(fitted, rel=1e-3)


@pytest.mark.parametrize("preset", ["projects", "everything"])
def test_names_on_the_canvas_are_whole_and_apart_from_their_counts(
    overview: Overview, preset: str
) -> None:
    page = overview.page
    page.set_viewport_size({"width": 1440, "height": 900})
    overview.open(f"?view={preset}")
    overview.hold()
    written = overview.wait_until(lambda: page.evaluate("window.marey.names()"), "names")
    counted = [one for one in written if "·" in one["text"]]
    assert counted
    for one in counted:
        assert re.search(rf"\S · {one['count']:,.0f}$".replace(",", "[,\u202f]"), one["text"]), one
    if preset == "projects":
        bars = {group["name"] for group in overview.groups(2) if group["count"] >= 0.02 * GPUS}
        whole = {one["name"] for one in written if one["text"].startswith(one["name"])}
        assert bars <= whole, "every bar says its project and how many it has"


def test_the_legend_has_round_times(overview: Overview) -> None:
    page = overview.open("?view=waiting").page
    overview.hold()
    ticks = page.locator("section[aria-label=Colour] span[style*=left]").all_inner_texts()
    assert len(ticks) >= 2
    for tick in ticks:
        assert re.fullmatch(r"[\d.]+\s*(s|min|h|d|days?)?", tick.strip()), ticks


def test_no_text_of_the_overview_is_cut(overview: Overview) -> None:
    page = overview.page
    page.set_viewport_size({"width": 1440, "height": 900})
    overview.open("?view=physical")
    overview.hold()
    overview.click_unit(overview.page.evaluate('window.marey.rows(["gpu"])')[0][0])
    page.wait_for_selector("[data-testid=card]")
    assert page.evaluate(CUT) == []


# Whose text is wider than the room that it has; what is scrolled or read aloud only is not cut.
CUT = """() => [...document.querySelectorAll("body *")]
  .filter((one) => one.children.length === 0 && one.textContent.trim() && one.clientWidth > 0)
  .filter((one) => one.checkVisibility({ visibilityProperty: true }))
  .filter((one) => !one.closest("option, [class*=visually-hidden], canvas, svg"))
  .filter((one) => getComputedStyle(one).overflowX !== "visible")
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.textContent.trim().slice(0, 60))"""


def test_idle_units_are_seen_beside_a_selection(overview: Overview) -> None:
    page = overview.open("?view=health&renderer=software").page
    overview.hold()
    rows = page.evaluate('window.marey.rows(["gpu", "state"])')
    idle = [gpu for gpu, state in rows if state == "idle"]
    taken = [gpu for gpu, state in rows if state == "allocated"]
    assert idle
    overview.click_unit(taken[0])
    page.wait_for_selector("[data-testid=card]")
    # The card covers the right of the canvas.
    for gpu in (idle[0], taken[0]):
        assert read_contrast(page, overview.where("gpu", gpu)) >= 1.2, gpu


def read_contrast(page: Any, place: dict[str, float]) -> float:
    """Return how much a unit differs in brightness from the gap beside it."""
    return page.evaluate(
        """({ x, y, width, height }) => {
          const canvas = document.querySelector("[data-testid=canvas] canvas");
          const box = canvas.getBoundingClientRect();
          const ratio = canvas.width / box.width;
          const light = (px, py) => {
            const at = [(px - box.left) * ratio, (py - box.top) * ratio].map(Math.round);
            const rgb = canvas.getContext("2d").getImageData(...at, 1, 1).data;
            const [r, g, b] = [...rgb].slice(0, 3).map((c) =>
              (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
          };
          const unit = light(x + width * 0.4, y + height * 0.4);
          const gap = light(x + width * 0.95, y + height * 0.95);
          return Math.max(unit, gap) / Math.min(unit, gap);
        }""",
        place,
    )
