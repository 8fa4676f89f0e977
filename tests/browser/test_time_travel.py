"""Any past moment on the canvas: asked for, walked through, shared, and left again."""

from __future__ import annotations

import urllib.parse
from typing import Any

from tests.browser.conftest import GPUS, Demo, Overview


def open_timeline(overview: Overview) -> Any:
    page = overview.open().page
    page.get_by_test_id("time-travel").click()
    page.wait_for_selector("[data-testid=strip]")
    return page


def go_to(overview: Overview, share: float) -> int:
    """Press the strip at a share of its width; the moment that the address then names."""
    box = overview.page.get_by_test_id("strip").bounding_box()
    overview.page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 3)
    arrived(overview)
    return moment(overview)


def arrived(overview: Overview) -> None:
    page = overview.page
    overview.wait_until(
        lambda: "at=" in page.url and not page.inner_text("[data-testid=time-said]").strip(),
        "the moment",
    )


def moment(overview: Overview) -> int:
    """The moment on the strip, in milliseconds."""
    return int(overview.page.get_attribute("[data-testid=strip]", "aria-valuenow"))


def test_the_canvas_shows_the_moment_that_the_server_has_stored(
    overview: Overview, demo: Demo
) -> None:
    open_timeline(overview)
    go_to(overview, 0.4)
    at = urllib.parse.parse_qs(urllib.parse.urlparse(overview.page.url).query)["at"][0]
    told = demo.get(f"/cluster?at={urllib.parse.quote(at)}&metrics=util")
    states = [unit["state"] for unit in told["units"]]
    assert overview.number("gpus") == GPUS == len(states)
    assert overview.number("allocated") == states.count("allocated")
    waiting = [w for w in told["workloads"] if w["state"] == "pending"]
    assert overview.number("waitingWorkloads") == len(waiting)
    used = [unit["util"] for unit in told["units"] if unit["state"] == "allocated"]
    mean = sum(value for value in used if value is not None) / len(used)
    assert abs(overview.number("meanUtil") - mean) < 1.5
    # Live ticks go on behind it, and the picture stays.
    before = overview.number("allocated")
    overview.page.wait_for_timeout(1500)
    assert overview.number("allocated") == before


def test_what_had_been_found_then_is_marked_and_what_was_found_later_is_not(
    overview: Overview, demo: Demo
) -> None:
    overview.wait_until(lambda: demo.get("/findings")["rows"], "rules that have read the history")
    page = open_timeline(overview)
    at = go_to(overview, 0.97)

    def marked_then() -> set[tuple[str, str]]:
        told = demo.get(f"/verdicts?at={at / 1000:.3f}")["rules"]
        return {(row["rule"], w) for row in told for w in row["now"]["workloads"]}

    def open_then() -> set[tuple[str, str]]:
        return {
            (row["rule"], row["workload"])
            for row in demo.get("/findings?limit=10000")["rows"]
            if any(
                one["opened_ms"] <= at and (one["closed_ms"] is None or at < one["closed_ms"])
                for one in row["episodes"]
            )
        }

    assert open_then()
    # A tick between the two questions may open a finding whose beginning lies before the moment.
    overview.wait_until(lambda: marked_then() == open_then(), "the findings of that moment")
    bar = page.get_by_test_id("rule-bar")
    assert bar.get_by_role("heading").inner_text() == "Findings then"
    overview.wait_until(
        lambda: bar.locator("[data-testid^=chip-]").count() > 0, "the rules of that moment"
    )
    assert bar.get_by_test_id("rule-new").count() == 0
    go_to(overview, 0.0)
    overview.wait_until(
        lambda: "No findings were open" in bar.inner_text(), "a moment before the first finding"
    )
    page.get_by_test_id("go-live").click()
    overview.wait_until(lambda: bar.get_by_role("heading").inner_text() == "Rules", "live again")


def test_a_moment_that_the_rules_have_not_read_is_not_known_yet(overview: Overview) -> None:
    page = open_timeline(overview)

    def early(route: Any) -> None:
        told = route.fetch().json()
        route.fulfill(json=told | {"rules": [], "time_ms": None, "share_read": 0.4})

    page.route("**/api/v1/verdicts?*at=*", early)
    go_to(overview, 0.9)
    bar = page.get_by_test_id("rule-bar")
    bar.get_by_text("Not known yet. Evaluating rules on past data… 40").wait_for()
    assert "No findings were open" not in bar.inner_text()
    # Once they have come to it, it is asked for again by itself.
    page.unroute("**/api/v1/verdicts?*at=*")
    overview.wait_until(lambda: "Not known yet" not in bar.inner_text(), "what was found")


def test_it_plays_both_ways_and_stops(overview: Overview) -> None:
    page = open_timeline(overview)
    start = go_to(overview, 0.5)
    page.get_by_test_id("play-forward").click()
    overview.wait_until(lambda: moment(overview) > start + 120_000, "playing forward")
    page.get_by_test_id("play-back").click()
    turned = moment(overview)
    overview.wait_until(lambda: moment(overview) < turned - 120_000, "playing backward")
    page.get_by_test_id("play-back").click()
    stopped = moment(overview)
    page.wait_for_timeout(700)
    assert abs(moment(overview) - stopped) < 120_000
    assert page.get_by_test_id("play-back").get_attribute("aria-pressed") == "false"


def test_keys_move_it_and_marks_are_jumped_to(overview: Overview, demo: Demo) -> None:
    page = open_timeline(overview)
    start = go_to(overview, 0.9)
    page.get_by_test_id("strip").focus()
    page.keyboard.press("ArrowLeft")
    assert moment(overview) == start - 15_000
    page.keyboard.press("PageDown")
    assert moment(overview) == start - 615_000
    kinds = "xid,node_down,node_drain,throttle,policy_change,reservation,source_stale"
    happened = {row["time_ms"] for row in demo.get(f"/events?kinds={kinds}")["rows"]}
    found = {row["opened_ms"] for row in demo.get("/findings")["rows"]}
    assert happened
    page.get_by_test_id("mark-before").click()
    overview.wait_until(lambda: moment(overview) in happened | found, "a moment with a mark")


def test_a_permalink_opens_at_its_moment_and_live_is_a_button_away(overview: Overview) -> None:
    page = open_timeline(overview)
    go_to(overview, 0.3)
    link = page.url
    allocated = overview.number("allocated")
    page.goto("about:blank")
    page.goto(link)
    overview.wait_drawn()
    page.wait_for_selector("[data-testid=past]")
    overview.wait_until(lambda: overview.number("allocated") == allocated, "the same picture")
    page.get_by_test_id("go-live").click()
    page.wait_for_selector("[data-testid=live]")
    overview.wait_until(lambda: "at=" not in page.url, "the address without a moment")


def test_diagnostics_opens_at_that_moment(overview: Overview, demo: Demo) -> None:
    page = open_timeline(overview)
    at = go_to(overview, 0.6)
    told = demo.get(f"/cluster?at={at / 1000:.3f}&metrics=util")
    workload = next(w["id"] for w in told["workloads"] if w["state"] == "running")
    spot = overview.where("workload", workload)
    page.mouse.click(spot["x"], spot["y"])
    address = page.get_by_role("link", name="Diagnose").get_attribute("href")
    query = urllib.parse.parse_qs(urllib.parse.urlparse(address).query)
    assert query["to"] == [str(at)]
    assert int(query["from"][0]) < at


def test_a_moment_that_makes_no_sense_is_said(overview: Overview) -> None:
    page = overview.open("?at=yesterday").page
    assert "moment in the address was ignored" in page.inner_text("[data-testid=problems]")
    page.wait_for_selector("[data-testid=live]")


def test_a_drag_shows_rough_pictures_and_the_exact_one_at_rest(
    overview: Overview, demo: Demo
) -> None:
    page = open_timeline(overview)
    asked: list[dict[str, list[str]]] = []

    def note(request: Any) -> None:
        if "/api/v1/cluster?" in request.url:
            asked.append(urllib.parse.parse_qs(urllib.parse.urlparse(request.url).query))

    page.on("request", note)
    box = page.locator("[data-testid=strip]").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.8 * box["width"], middle)
    page.mouse.down()
    for share in (0.7, 0.6, 0.5, 0.45, 0.4, 0.35):
        page.mouse.move(box["x"] + share * box["width"], middle)
        page.wait_for_timeout(40)
    overview.wait_until(lambda: any("step_s" in one for one in asked), "a rough picture")
    page.mouse.up()
    overview.wait_until(lambda: "step_s" not in asked[-1], "the exact picture")
    arrived(overview)

    def shows_exact() -> bool:
        at = urllib.parse.parse_qs(urllib.parse.urlparse(page.url).query)["at"][0]
        told = demo.get(f"/cluster?at={urllib.parse.quote(at)}&metrics=util")
        states = [unit["state"] for unit in told["units"]]
        return overview.number("allocated") == states.count("allocated")

    overview.wait_until(shows_exact, "the numbers of that moment")
