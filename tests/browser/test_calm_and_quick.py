"""What people feel before they read: whole names, nothing cut, little fetched, printed plainly."""

from __future__ import annotations

import json
import re
import time
from collections import Counter, defaultdict
from typing import Any
from urllib.parse import quote

import pytest

from scripts.page_pictures import list_pages
from tests.browser.conftest import Demo, Overview

# What the first page may transfer, packed.
FIRST_PAGE_BYTES = 250_000
WATCHED_S = 10


def test_the_first_page_is_small_and_fetches_nothing_three_times(
    overview: Overview, demo: Demo
) -> None:
    page = overview.page
    page.request.get(overview.url)
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    received: list[float] = []
    session.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    asked: dict[str, list[float]] = defaultdict(list)
    page.on("request", lambda request: asked[request.url].append(time.monotonic()))
    overview.open()
    page.wait_for_load_state("networkidle")
    assert 0 < sum(received) <= FIRST_PAGE_BYTES
    page.wait_for_timeout(WATCHED_S * 1000)
    often = [
        url
        for url, times in asked.items()
        if any(third - first < WATCHED_S for first, third in zip(times, times[2:], strict=False))
    ]
    assert often == []


def test_what_is_refused_is_asked_once(overview: Overview, demo: Demo) -> None:
    page, refused = overview.page, list[str]()
    overview.errors.permit("status of 404 .*no-such-job")
    page.on("response", lambda answer: refused.append(answer.url) if answer.status == 404 else None)
    page.goto(overview.url + "/workload?id=no-such-job")
    page.get_by_text("no-such-job").first.wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(3_000)
    assert refused
    assert [url for url, times in Counter(refused).items() if times > 1] == []


def test_rules_have_whole_names_in_two_rows_of_a_usual_screen(
    overview: Overview, demo: Demo
) -> None:
    page = overview.page
    page.set_viewport_size({"width": 1440, "height": 900})
    overview.open()
    overview.wait_until(lambda: page.locator("[data-testid^=chip-]").count() > 0, "rules")
    cut = page.evaluate(
        """() => [...document.querySelectorAll("[data-testid^=chip-] span")]
             .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent)"""
    )
    assert cut == []
    # A row is 27 px, with its gap 33.
    assert page.get_by_test_id("rule-bar").bounding_box()["height"] <= 2 * 33 + 12
    counts = page.locator("[data-testid^=chip-] small").first.inner_text()
    assert "now" in counts
    assert "whole run" in counts


def test_a_fitted_view_stays_fitted_when_a_panel_opens(overview: Overview) -> None:
    overview.open()
    overview.hold()
    page = overview.page
    camera = "JSON.stringify(window.marey.camera())"
    before = page.evaluate(camera)
    page.get_by_role("button", name="Hide panel").click()
    overview.wait_until(lambda: page.evaluate(camera) != before, "a view fitted to more room")
    overview.still()
    fitted = page.evaluate(camera)
    page.get_by_test_id("canvas").focus()
    page.keyboard.press("0")
    overview.still()
    assert page.evaluate(camera) == fitted


@pytest.mark.parametrize("width", [420, 1440])
def test_nothing_lies_over_the_units(overview: Overview, width: int) -> None:
    page = overview.page
    page.set_viewport_size({"width": width, "height": 820})
    overview.open("?panel=0" if width == 420 else "")
    canvas = page.get_by_test_id("canvas").bounding_box()
    others = [page.get_by_role("group", name="Zoom")]
    if width == 420:
        others.append(page.get_by_role("region", name="Colour"))
    for other in others:
        box = other.bounding_box()
        assert canvas is not None
        assert box is not None
        beside = box["x"] >= canvas["x"] + canvas["width"] - 0.5
        assert beside or box["y"] >= canvas["y"] + canvas["height"] - 0.5
    if width == 420:
        page.get_by_role("button", name="Show legend").click()
        page.get_by_role("button", name="Hide legend").wait_for()


@pytest.mark.parametrize("width", [420, 1440, 2560])
def test_no_page_is_wider_than_the_window(overview: Overview, demo: Demo, width: int) -> None:
    page = overview.page
    page.set_viewport_size({"width": width, "height": 900})
    wide = []
    for name, path in list_pages(demo.url).items():
        page.goto(overview.url + path)
        page.wait_for_selector("h1", state="attached")
        page.wait_for_load_state("networkidle")
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wide.append(name)
    assert wide == []


def test_in_a_narrow_window_no_page_is_cut_off_and_the_menu_has_the_rest(
    overview: Overview, demo: Demo
) -> None:
    page = overview.page
    bar = page.get_by_role("navigation", name="Pages")
    page.set_viewport_size({"width": 1440, "height": 820})
    page.goto(overview.url + "/findings")
    names = set(bar.get_by_role("link").all_inner_texts())
    page.set_viewport_size({"width": 420, "height": 820})
    bar.locator("a[data-wrapped]").first.wait_for(state="attached")
    edges = bar.locator("div").first.bounding_box()
    assert edges is not None
    shown = bar.get_by_role("link").all()
    for link in shown:
        box = link.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= edges["x"] + edges["width"] + 0.5
        assert box["y"] + box["height"] <= edges["y"] + edges["height"] + 0.5
    fitting = {link.inner_text() for link in shown}
    assert fitting
    bar.get_by_role("button", name="More").click()
    menu = page.get_by_role("dialog", name="More pages")
    assert names <= fitting | set(menu.get_by_role("link").all_inner_texts())
    menu.get_by_role("link", name="Waste", exact=True).click()
    page.wait_for_url("**/waste*")


def test_in_a_narrow_window_the_card_of_a_waiting_workload_lies_over_the_panel(
    overview: Overview, demo: Demo
) -> None:
    workload = demo.get("/queue?limit=1")["rows"][0]["workload"]
    chosen = json.dumps([{"field": "workload", "op": "eq", "value": workload}])
    page = overview.page
    page.set_viewport_size({"width": 420, "height": 820})
    page.goto(f"{overview.url}/?view=workloads&panel=1&sel={quote(chosen)}")
    card = page.get_by_test_id("card")
    card.wait_for()
    # Clicked as people click: whatever lies over it would take the click.
    card.get_by_role("heading").first.click(trial=True, timeout=20_000)
    card.get_by_role("button", name="Close").click(timeout=20_000)
    card.wait_for(state="detached")


def test_pages_print_without_their_controls(overview: Overview, demo: Demo) -> None:
    page = overview.page
    page.goto(overview.url + "/waste?since=24h")
    page.wait_for_selector("[data-testid=waste-table] tbody tr")
    page.emulate_media(media="print")
    assert not page.get_by_role("navigation", name="Pages").is_visible()
    assert page.locator("[data-testid=waste-table] tbody tr").first.is_visible()


def test_times_are_written_one_way_everywhere(overview: Overview, demo: Demo) -> None:
    page = overview.page
    page.goto(overview.url + "/jobs?columns=name,submitted")
    page.wait_for_selector("[data-testid=job-row] a")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("ISO 8601")
    page.get_by_role("option").first.click()
    overview.wait_until(
        lambda: has_iso_times(page, "[data-testid=job-row]"), "ISO times in a table"
    )
    page.goto(overview.url + "/findings?state=all")
    page.wait_for_selector("[data-testid=findings] li")
    assert has_iso_times(page, "[data-testid=findings] li")
    page.get_by_role("button", name="More", exact=True).click()
    with page.expect_navigation():
        page.get_by_role("radio").first.click()
    page.wait_for_selector("[data-testid=findings] li")
    assert not has_iso_times(page, "[data-testid=findings] li")


def has_iso_times(page: Any, where: str) -> bool:
    """Return whether the first such element says a time as ISO 8601 writes it."""

    texts = page.locator(where).all_inner_texts()
    return any(re.search(r"2026-11-\d\d[T ]\d\d:\d\d", text) for text in texts)
