"""The timeline, the rules, the report and comparisons of a workload, in a real browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.diagnosis.test_diagnosis_cases import CASES, inventory, samples
from tests.browser.conftest import Complaints, Demo, open_window
from tests.browser.test_diagnostics import Diagnostics, serve
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A store with small and difficult workloads, served."""
    from marey.store.embedded.embedded_store import open_store

    folder = tmp_path_factory.mktemp("cases")
    with open_store(folder / "site.duckdb") as store:
        store.apply(inventory())
        for case in CASES:
            if len(samples(case)):
                store.append([samples(case)])
    (folder / "marey.toml").write_text('[store]\npath = "site.duckdb"\n', encoding="utf-8")
    running = serve(folder)
    yield running
    running.stop()


@pytest.fixture
def diagnostics(browser: Any, server: Demo) -> Iterator[Diagnostics]:
    for window in open_window(browser, server, reduced_motion="reduce"):
        yield Diagnostics(window)


def span(page: Any) -> tuple[int, int]:
    """What the timelines show, in milliseconds."""
    shown = page.locator("[data-testid=span]")
    return int(shown.get_attribute("data-from")), int(shown.get_attribute("data-to"))


def length(page: Any) -> int:
    begin, end = span(page)
    return end - begin


def wheel(page: Any, *, up: bool, key: str) -> None:
    box = page.locator("[data-testid=timeline] .u-over").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.keyboard.down(key)
    page.mouse.wheel(0, -120 if up else 120)
    page.keyboard.up(key)


def test_zoom_and_pan_by_wheel_keys_buttons_and_drag_move_every_chart(
    diagnostics: Diagnostics,
) -> None:
    page, until = diagnostics.open("usual").page, diagnostics.window.wait_until
    page.wait_for_selector("[data-testid=timeline] .u-over")
    whole = span(page)
    page.locator("[data-testid=timeline]").first.scroll_into_view_if_needed()
    for _ in range(4):
        wheel(page, up=True, key="Control")
    until(lambda: length(page) < 0.6 * (whole[1] - whole[0]), "zoomed in by the wheel")
    assert page.locator("[data-testid=window]").count() == 0, "zooming filters nothing"
    before = span(page)
    wheel(page, up=False, key="Shift")
    until(lambda: span(page)[0] > before[0], "moved by the wheel")
    # Keyboard.
    page.locator("[data-testid=timeline]").first.focus()
    before = span(page)
    page.keyboard.press("ArrowLeft")
    until(lambda: span(page)[0] < before[0], "moved by the keyboard")
    page.keyboard.press("+")
    until(lambda: length(page) < 0.6 * (before[1] - before[0]), "zoomed by the keyboard")
    # Shift and drag.
    before = span(page)
    page.keyboard.down("Shift")
    diagnostics.drag("[data-testid=timeline] .u-over", (0.3, 0.5), (0.6, 0.5))
    page.keyboard.up("Shift")
    until(lambda: span(page)[0] < before[0], "dragged")
    assert length(page) == pytest.approx(before[1] - before[0], rel=0.01)
    # Filter by what is shown; then everything again.
    page.get_by_role("button", name="Apply to page").click()
    page.wait_for_selector("[data-testid=window]")
    page.get_by_test_id("window").click()
    until(lambda: span(page) == whole, "the whole life again")


def test_the_window_goes_into_the_report_that_is_asked_for(diagnostics: Diagnostics) -> None:
    page = diagnostics.open("usual").page
    page.wait_for_selector("[data-testid=timeline] .u-over")
    link = page.get_by_role("link", name="Report")
    assert "from=" not in link.get_attribute("href")
    diagnostics.drag("[data-testid=timeline] .u-over", (0.3, 0.5), (0.6, 0.5))
    page.wait_for_selector("[data-testid=window]")
    address = link.get_attribute("href")
    assert "from=" in address
    assert "to=" in address


def test_a_report_draws_itself_from_its_own_file(
    browser: Any, server: Demo, tmp_path: Path
) -> None:
    import urllib.request

    address = f"{server.url}/api/v1/diagnosis/report?workload=wasteful"
    path = tmp_path / "report.html"
    path.write_bytes(urllib.request.urlopen(address, timeout=60).read())
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    asked: list[str] = []
    wrong = Complaints(page)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-drawn='1']")
    assert asked == [path.as_uri()], "nothing is loaded from outside"
    assert wrong == []
    for name, what in (
        ("life", "svg rect"),
        ("multiples", "canvas"),
        ("timeline", "canvas"),
        ("scatter", "canvas"),
    ):
        assert page.locator(f"[data-picture={name}] {what}").count() > 0, name
    # Opened from the server it is as closed, and draws too.
    page.goto(address)
    page.wait_for_selector("html[data-drawn='1']")
    page.close()


def test_two_workloads_are_compared_and_peers_are_named(diagnostics: Diagnostics) -> None:
    page = diagnostics.open("wasteful").page
    page.wait_for_selector("[data-testid=peers] tbody tr")
    assert "peers" in page.inner_text("[data-testid=peers] h3")
    assert "No other workload" not in page.inner_text("[data-testid=peers]")
    assert page.locator("[data-testid=peers] tr[data-below=true]").count() > 0, "below its peers"
    page.get_by_label("ID of another workload").fill("usual")
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_selector("[data-testid=sides] tbody tr")
    assert "idle gpus" in page.inner_text("[data-testid=changed]")
    assert page.locator("[data-testid=sides] svg path").count() == 2
    page.wait_for_selector("[data-testid=side-charts] canvas")
    assert page.locator("[data-testid=side-charts] canvas").count() == 2, "both over time"


def test_the_verdict_of_a_window_stands_beside_that_of_the_life(diagnostics: Diagnostics) -> None:
    page = diagnostics.open("wasteful").page
    page.wait_for_selector("[data-testid=timeline] .u-over")
    assert page.locator("[data-testid=in-window]").count() == 0
    diagnostics.drag("[data-testid=timeline] .u-over", (0.3, 0.5), (0.6, 0.5))
    said = page.locator("[data-testid=in-window]")
    diagnostics.window.wait_until(lambda: "idle gpus" in said.inner_text(), "its own verdict")
    page.get_by_test_id("window").click()
    diagnostics.window.wait_until(lambda: said.count() == 0, "the whole life alone")


def test_a_long_look_shows_how_far_it_is_and_can_be_cancelled(diagnostics: Diagnostics) -> None:
    page = diagnostics.page
    # The answer is held back until the reader has given up.
    page.route("**/api/v1/diagnosis?*", lambda route: None)
    page.goto(f"{diagnostics.window.url}/workload?id=usual")
    page.wait_for_selector("[data-testid=waiting] progress")
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_selector("[data-testid=notice]")
    assert "Cancelled" in page.inner_text("[data-testid=notice]")
    page.unroute("**/api/v1/diagnosis?*")
    page.get_by_role("button", name="Try again").click()
    diagnostics.wait_until_drawn()
    assert page.locator("[data-testid=finding]").count() == 1


def test_every_pair_of_metrics_is_named_and_chosen_from_a_matrix(diagnostics: Diagnostics) -> None:
    page = diagnostics.open("wasteful").page
    page.get_by_text("All pairs of metrics").click()
    page.wait_for_selector("[data-testid=pairs] table button")
    cell = page.locator("[data-testid=pairs] table button").first
    assert "correlation" in (cell.get_attribute("aria-label") or "")
    page.get_by_label("X axis").select_option("power")
    cell.click()
    diagnostics.window.wait_until(
        lambda: cell.get_attribute("aria-pressed") == "true", "the pair that was chosen"
    )


def test_rules_have_their_place_and_can_be_edited_here(diagnostics: Diagnostics) -> None:
    page = diagnostics.open("wasteful").page
    bar = page.get_by_test_id("rule-bar")
    bar.wait_for()
    chips = page.locator("[data-testid^=chip-rule]")
    diagnostics.window.wait_until(lambda: chips.count() > 0, "a violated rule")
    marked = page.locator("[data-testid=multiples]")
    diagnostics.window.wait_until(
        lambda: int(marked.get_attribute("data-marked") or 0) > 0, "marks on the plots"
    )
    assert page.locator("[data-testid=rules] li").count() == chips.count()
    page.get_by_test_id("rule-new").click()
    page.get_by_role("dialog").wait_for()


@pytest.mark.parametrize(
    ("case", "where", "said"),
    [
        ("nothing", "notice", "nothing to plot"),
        ("one-sample", "one-sample", "Only one sample so far"),
        ("one-gpu", "one-gpu", "one GPU"),
    ],
)
def test_a_workload_with_too_little_to_show_says_so(
    diagnostics: Diagnostics, case: str, where: str, said: str
) -> None:
    page = diagnostics.page
    page.goto(f"{diagnostics.window.url}/workload?id={case}")
    page.wait_for_selector(f"[data-testid={where}]")
    assert said in page.inner_text(f"[data-testid={where}]")
    assert diagnostics.window.errors == []


@pytest.mark.parametrize("case", ["constant", "gaps", "mixed", "late"])
def test_a_difficult_workload_is_drawn_all_the_same(diagnostics: Diagnostics, case: str) -> None:
    page = diagnostics.open(case).page
    assert page.get_attribute("[data-testid=multiples]", "data-count") == "4"
    page.wait_for_selector("[data-testid=timeline] canvas")
    assert (
        page.locator("[data-testid=finding]").count()
        + page.locator("[data-testid=verdict]").count()
        > 0
    )
    assert diagnostics.window.errors == []


@pytest.fixture
def live(browser: Any, demo: Demo) -> Iterator[Diagnostics]:
    for window in open_window(browser, demo, reduced_motion="reduce"):
        yield Diagnostics(window)


def test_an_earlier_run_of_the_same_experiment_is_picked_for_comparison(
    live: Diagnostics, demo: Demo
) -> None:
    rows = demo.get("/jobs?limit=1000&state=running")["rows"]
    rows += demo.get("/jobs?limit=1000&state=completed")["rows"]
    runs = Counter((row["experiment"], row["user"]) for row in rows if row["experiment"])
    own = next(row for row in rows if runs[row["experiment"], row["user"]] > 1)
    page = live.open(own["workload"]).page
    picker = page.get_by_label("Runs of this name or experiment")
    picker.wait_for()
    other = picker.locator("option").nth(1).get_attribute("value") or ""
    assert other not in ("", own["workload"])
    picker.select_option(other)
    sides = page.get_by_test_id("sides")
    sides.locator("tbody tr").first.wait_for()
    assert other in sides.inner_text()
    assert page.locator("[data-testid=life] svg rect").count() >= 1


def test_many_gpus_have_a_line_each_get_denser_and_move_on_until_held(
    live: Diagnostics, demo: Demo
) -> None:
    rows = demo.get("/workloads?state=running&limit=500")["rows"]
    # The youngest of the large ones: it must go on while the page is looked at.
    most = max(row["gpus_requested"] for row in rows)
    large = max(
        (row for row in rows if row["gpus_requested"] >= most / 2), key=lambda row: row["start_ms"]
    )
    page, until = live.open(large["workload"]).page, live.window.wait_until
    page.wait_for_selector("[data-testid=timeline] .u-over")
    multiples = page.locator("[data-testid=multiples]")
    count = int(multiples.get_attribute("data-count") or 0)
    multiples.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    for _ in range(count):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+Enter")
    until(lambda: live.lines()[0] == min(64, count), "a line per GPU")
    # A running workload goes on without being asked.
    chart = page.locator("[data-testid=timeline]").first
    end = int(chart.get_attribute("data-end") or 0)
    until(lambda: int(chart.get_attribute("data-end") or 0) > end, "it moves on")
    page.get_by_label("Pause", exact=True).click()
    # Narrow enough, every sample is a point.
    chart.focus()
    for _ in range(5):
        page.keyboard.press("+")
    until(lambda: "Every sample" in page.inner_text("[data-testid=timeline-part]"), "dense")
    assert live.window.errors == []
