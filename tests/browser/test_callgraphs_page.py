"""Call graphs in a real browser: every view, from files of several makers; and runs compared."""

from __future__ import annotations

import cProfile
import json
import marshal
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Demo, Overview
from tests.waiting import PATIENCE_S

AXE = Path(__file__).resolve().parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
HOSTILE = "<img src=x onerror=alert(1)>"
RUNS = 6
SLOW = 2


def stacks(read: int) -> bytes:
    """Collapsed stacks of a program that calls itself; one name is hostile."""
    lines = {
        "main;load;read": read,
        "main;solve;step;solve;step": 300,
        "main;solve;step": 200,
        f"main;{HOSTILE}": 50,
    }
    return "".join(f"{path} {value}\n" for path, value in lines.items()).encode()


def speedscope() -> bytes:
    """What py-spy writes for speedscope: two samples."""
    frames = [{"name": name} for name in ("main", "wait")]
    profile = {
        "type": "sampled", "name": "thread 1", "unit": "milliseconds", "startValue": 0,
        "endValue": 30, "samples": [[0, 1], [0]], "weights": [20, 10],
    }  # fmt: skip
    schema = "https://www.speedscope.app/file-format-schema.json"
    document = {"$schema": schema, "shared": {"frames": frames}, "profiles": [profile]}
    return json.dumps(document).encode()


def pstats() -> bytes:
    """What Python's own profiler writes."""
    profiler = cProfile.Profile()
    profiler.runcall(json.loads, json.dumps(list(range(1000))))
    profiler.create_stats()
    return marshal.dumps(profiler.stats)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def profiles(demo: Demo) -> Demo:
    """The demo with profiles of three makers under four names."""
    sent = {("nightly", f"run{n}.txt"): stacks(500 if n == SLOW else 100 + n) for n in range(RUNS)}
    sent |= {("after", f"run{n}.txt"): stacks(190 + n) for n in range(RUNS)}
    sent |= {("sizes", f"batch={n}.txt"): stacks(10 * n) for n in (8, 16, 32, 64)}
    sent |= {("sampled", "one.speedscope.json"): speedscope(), ("python", "one.prof"): pstats()}
    for (name, file), content in sent.items():
        query = urllib.parse.urlencode({"owner": f"callgraph:{name}", "file": file})
        address = f"{demo.url}/api/v1/uploads?{query}"
        request = urllib.request.Request(address, content, demo.owner_headers, method="PUT")
        urllib.request.urlopen(request, timeout=PATIENCE_S).close()
    return demo


def open_graphs(window: Overview, **query: str) -> Any:
    """Open the page on the nightly runs and wait for the first picture."""
    asked = {"source": "callgraph:nightly", "by": "name", "share": "0", **query}
    window.page.goto(f"{window.url}/callgraphs?{urllib.parse.urlencode(asked)}")
    window.page.wait_for_selector("[data-testid=sankey][data-draw-ms]")
    return window.page


def colours(page: Any, view: str) -> int:
    """Return how many colours a drawing has; one that stayed empty has one."""
    return page.evaluate(
        """view => {
          const canvas = document.querySelector(`[data-testid=${view}]`);
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return new Set(new Uint32Array(data.buffer)).size;
        }""",
        view,
    )


def address(page: Any) -> dict[str, list[str]]:
    return urllib.parse.parse_qs(urllib.parse.urlsplit(page.url).query)


def wait_address(window: Overview, word: str, value: list[str]) -> None:
    window.wait_until(lambda: address(window.page).get(word) == value, f"{word}={value}")


def test_whoever_stands_out_is_named_and_shown_in_every_view(
    overview: Overview, profiles: Demo
) -> None:
    page = open_graphs(overview)
    page.wait_for_selector("[data-testid=map][data-draw-ms]")
    for view in ("sankey", "icicle", "scatter", "map"):
        assert colours(page, view) > 3, f"{view} is empty"
    suspects = page.locator("[data-testid=suspects] li")
    assert "load › read" in suspects.first.inner_text()
    suspects.first.get_by_role("button").click()
    wait_address(overview, "path", ["main", "load", "read"])
    assert address(page)["target"] == [str(SLOW)]
    page.get_by_text("main › load › read", exact=True).wait_for()
    page.wait_for_selector("[data-testid=histogram][data-draw-ms]")
    assert colours(page, "histogram") > 2
    assert overview.errors == []


def test_supernodes_are_marked_revealed_and_split(overview: Overview, profiles: Demo) -> None:
    page = open_graphs(overview)
    before = page.locator("[data-testid=sankey]").screenshot()
    page.get_by_label("Marked profile").select_option(str(SLOW))
    wait_address(overview, "target", [str(SLOW)])
    overview.wait_until(
        lambda: page.locator("[data-testid=sankey]").screenshot() != before, "the marked profile"
    )
    page.get_by_text("Show as table").first.click()
    table = page.locator("[data-testid=supernodes]")
    for how, name, made in (
        ("Split by caller", "solve", "step › solve"),
        ("Split by callee", "load", "load › read"),
        ("Reveal", "step", "step: step"),
    ):
        table.get_by_role("button", name=name, exact=True).click()
        page.get_by_test_id("histogram-title").get_by_text(name, exact=True).wait_for()
        page.get_by_role("button", name=how, exact=True).click()
        overview.wait_until(lambda made=made: made in table.inner_text(), made)
        page.get_by_role("button", name="Undo splits").click()
        table.get_by_role("button", name=name, exact=True).wait_for()
    # Hostile names stay text.
    assert HOSTILE in table.inner_text()


def test_call_sites_and_profiles_are_chosen_in_the_drawings(
    overview: Overview, profiles: Demo
) -> None:
    page = open_graphs(overview)
    icicle = page.get_by_test_id("icicle")
    icicle.focus()
    icicle.press("ArrowDown")
    icicle.press("Enter")
    wait_address(overview, "path", ["main"])
    page.wait_for_selector("[data-testid=map][data-draw-ms]")
    lasso = page.get_by_test_id("map")
    lasso.scroll_into_view_if_needed()
    box = lasso.bounding_box()
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.05)]
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places:
        page.mouse.move(*place, steps=3)
    page.mouse.up()
    wait_address(overview, "profiles", [f"0-{RUNS - 1}"])
    page.get_by_test_id("all-profiles").click()
    overview.wait_until(lambda: "profiles" not in address(page), "all profiles")
    scatter = page.get_by_test_id("scatter")
    scatter.scroll_into_view_if_needed()
    # Where a call site with most inclusive and no exclusive time stands: main.
    size = scatter.bounding_box()
    width = size["width"] - 84
    scatter.click(position={"x": 74 + width * 1.05 / 1.1, "y": 230 - 34 - (230 - 42) * 0.05 / 1.1})
    wait_address(overview, "path", ["main"])


def test_a_query_over_paths_finds_call_sites_and_is_in_the_address(
    overview: Overview, profiles: Demo
) -> None:
    page = open_graphs(overview)
    panel = page.get_by_test_id("query")
    panel.get_by_label("Query over paths").fill("main > * > read")
    panel.get_by_role("button", name="Find").click()
    wait_address(overview, "where", ["main > * > read"])
    panel.get_by_role("button", name="read").click()
    overview.wait_until(lambda: address(page).get("path", [""])[-1] == "read", "the chosen site")
    overview.errors.permit("status of 422 .*/callgraphs")
    panel.get_by_label("Query over paths").fill('{"field": "colour"')
    panel.get_by_role("button", name="Find").click()
    panel.get_by_role("alert").wait_for()
    panel.get_by_role("button", name="Clear query").click()
    overview.wait_until(lambda: "where" not in address(page), "no query")


def test_call_sites_are_shown_over_the_parameter_in_the_names_of_runs(
    overview: Overview, profiles: Demo
) -> None:
    page = open_graphs(overview, source="callgraph:sizes")
    page.wait_for_selector("[data-testid=scaling-lines][data-draw-ms]")
    assert colours(page, "scaling-lines") > 4
    row = page.get_by_test_id("trends").locator("tr", has_text="load › read")
    assert row.locator("td").all_inner_texts()[1:3] == ["grows", "1.00"]
    row.get_by_role("button").click()
    wait_address(overview, "path", ["main", "load", "read"])
    # Runs that differ in nothing are told so.
    page = open_graphs(overview)
    page.get_by_test_id("scaling").get_by_text("No parameter has 3 different values").wait_for()


def test_two_sets_are_compared_and_the_test_is_stated(overview: Overview, profiles: Demo) -> None:
    page = open_graphs(overview, source="callgraph:after")
    page.get_by_test_id("against").get_by_label("nightly").check()
    difference = page.get_by_test_id("difference")
    difference.wait_for()
    assert "Welch" in difference.inner_text()
    assert f"n = {RUNS} before and {RUNS} after" in difference.inner_text()


@pytest.mark.parametrize(("name", "call_site"), [("sampled", "wait"), ("python", "loads")])
def test_files_of_other_makers_are_drawn(
    overview: Overview, profiles: Demo, name: str, call_site: str
) -> None:
    page = open_graphs(overview, source=f"callgraph:{name}")
    page.get_by_text("Show as table").first.click()
    assert call_site in page.get_by_test_id("supernodes").inner_text()
    assert colours(page, "icicle") > 2


def test_runs_are_compared_on_their_page(overview: Overview, demo: Demo) -> None:
    jobs = demo.get("/jobs?state=running&limit=4")["rows"]
    names = [f"{'base' if n < 2 else 'new'}={job['workload']}" for n, job in enumerate(jobs)]
    page = overview.page
    page.goto(f"{overview.url}/compare")
    page.get_by_label("Workloads").fill(", ".join(names))
    page.get_by_role("button", name="Compare").click()
    page.get_by_test_id("comparison-test").wait_for()
    assert "not tested: fewer than 3 runs" in page.get_by_test_id("comparison-test").inner_text()


@pytest.mark.parametrize("path", ["/callgraphs?source=callgraph:nightly&by=name", "/compare"])
@pytest.mark.parametrize("width", [1440, 420])
def test_axe_finds_nothing_and_nothing_sticks_out(
    overview: Overview, profiles: Demo, path: str, width: int
) -> None:
    page = overview.page
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(overview.url + path)
    if "source" in path:
        page.wait_for_selector("[data-testid=map][data-draw-ms]")
    page.wait_for_selector("main h1")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert [f"{one['id']}: {one['nodes'][0]['html'][:160]}" for one in found["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
