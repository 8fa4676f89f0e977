"""Findings and waste as pages: looked at, acknowledged, muted, taken along as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marey.model.access.current import get_process_identity
from tests.browser.conftest import Demo, Overview


@pytest.fixture(autouse=True)
def prepared(demo: Demo, overview: Overview) -> None:
    """The rules have read their history, and there is something to look at."""
    overview.wait_until(lambda: demo.get("/verdicts")["time_ms"], "the first verdicts")
    overview.wait_until(lambda: demo.get("/findings")["total"], "findings")


def test_a_finding_is_read_commented_acknowledged_and_muted(overview: Overview, demo: Demo) -> None:
    page = overview.page
    finding = demo.get("/findings")["rows"][0]
    page.goto(f"{demo.url}/findings?state=all")
    page.get_by_test_id(f"finding-{finding['id']}").get_by_role("button").click()
    detail = page.get_by_test_id("finding-detail")
    detail.get_by_test_id("history").wait_for()
    assert f"id={finding['id']}" in page.url
    assert finding["title"] in detail.inner_text()
    if finding["evidence"]:
        assert "limit" in detail.get_by_test_id("evidence").inner_text()
    # Whoever is signed in, whatever a page would say.
    owner = get_process_identity().user
    detail.get_by_label("Comment", exact=True).fill("asked the user <b>")
    detail.get_by_test_id("comment").click()
    page.wait_for_selector(f"[data-testid=history]:has-text('by {owner}: asked the user <b>')")
    detail.get_by_test_id("acknowledge").click()
    page.wait_for_selector(f"[data-testid=history]:has-text('acknowledged by {owner}')")
    detail.get_by_test_id("finding-mute").locator("summary").click()
    assert detail.get_by_test_id("mute").is_disabled()
    detail.get_by_label("Reason").fill("a known test")
    detail.get_by_test_id("mute").click()
    page.wait_for_selector("[data-testid=finding-muted]:has-text('a known test')")
    kept = demo.get(f"/findings/{finding['id']}")
    assert kept["acknowledged"]["by"] == owner
    assert [comment["text"] for comment in kept["comments"]] == ["asked the user <b>"]
    (mute,) = demo.get("/mutes")
    assert (mute["scope"], mute["value"], mute["rule"]) == (
        "workload",
        finding["workload"],
        finding["rule"],
    )
    tags = page.get_by_test_id(f"finding-{finding['id']}")
    overview.wait_until(lambda: "acknowledged" in tags.inner_text(), "the tag")
    detail.get_by_role("button", name="Unmute").first.click()
    overview.wait_until(lambda: demo.get("/mutes") == [], "the mute's end")


def test_findings_are_filtered_and_the_filter_is_in_the_address(
    overview: Overview, demo: Demo
) -> None:
    page = overview.page
    # Another test's rule may be gone by the time the page asks: one of the site's own.
    kept = {rule["id"] for rule in demo.get("/rules")["rows"]}
    rule = next(row["rule"] for row in demo.get("/findings")["rows"] if row["rule"] in kept)
    page.goto(f"{demo.url}/findings?state=all")
    page.get_by_test_id("findings").wait_for()
    page.get_by_label("Rule").select_option(rule)

    def count_of_the_rule() -> bool:
        # The demo goes on: there may be another one by now.
        expected = demo.get(f"/findings?rule={rule}")["total"]
        return page.inner_text("[data-testid=findings-count]").startswith(f"{expected} finding")

    overview.wait_until(count_of_the_rule, "only that rule's findings")
    overview.wait_until(lambda: f"rule={rule}" in page.url, "the rule in the address")
    page.go_back()
    overview.wait_until(lambda: page.get_by_label("Rule").input_value() == "", "the page before")
    page.goto(f"{demo.url}/findings?workload=nothing")
    page.get_by_test_id("findings-empty").wait_for()
    page.get_by_test_id("notifications").locator("summary").click()
    assert "Nothing sent yet" in page.get_by_test_id("notifications").inner_text()


def test_rules_that_still_read_do_not_say_that_nothing_is_wrong(
    overview: Overview, demo: Demo
) -> None:
    page = overview.page

    def early(route: Any) -> None:
        told = route.fetch().json()
        route.fulfill(json=told | {"rows": [], "total": 0, "preparing": True})

    page.route("**/api/v1/findings?*", early)
    page.route("**/api/v1/waste?*", early)
    page.goto(f"{demo.url}/findings")
    assert "No findings yet" in page.get_by_test_id("findings-preparing").inner_text()
    page.goto(f"{demo.url}/waste")
    assert "Not known yet" in page.get_by_test_id("waste-preparing").inner_text()


def test_waste_is_summed_sorted_and_downloaded(
    overview: Overview, demo: Demo, tmp_path: Path
) -> None:
    page = overview.page
    with page.expect_response("**/api/v1/waste*") as told:
        page.goto(f"{demo.url}/waste?by=rule")
    rows = told.value.json()["rows"]
    table = page.get_by_test_id("waste-table")
    table.wait_for()
    assert table.locator("tbody tr").count() == len(rows)
    with page.expect_download() as waiting:
        page.get_by_test_id("waste-csv").click()
    path = tmp_path / "waste.csv"
    waiting.value.save_as(path)
    lines = path.read_text().splitlines()
    assert lines[0] == "rule,gpu_hours,findings,workloads"
    assert {line.split(",")[0] for line in lines[1:]} == {row["name"] for row in rows}
    table.get_by_role("button", name="Rule").click()

    def sorted_by_name() -> bool:
        names = table.locator("tbody td:first-child").all_inner_texts()
        return names == sorted(names, key=str.casefold)

    overview.wait_until(sorted_by_name, "rules by their names")
    page.get_by_role("button", name="Workload", exact=True).click()
    overview.wait_until(lambda: "by=workload" in page.url, "the sum in the address")
    table.locator("a[href^='/workload?id=']").first.wait_for()


def test_pages_lead_to_each_other_and_say_what_went_wrong(overview: Overview, demo: Demo) -> None:
    page = overview.open().page
    page.get_by_role("navigation").get_by_role("link", name="Findings").click()
    page.wait_for_url("**/findings")
    page.get_by_role("navigation").get_by_role("link", name="Waste").click()
    page.wait_for_url("**/waste")
    problem = {"type": "about:blank", "title": "No", "status": 422, "detail": "Not this sum."}
    overview.errors.permit("status of 422 .*/waste")
    page.route("**/api/v1/waste*", lambda route: route.fulfill(status=422, json=problem))
    page.reload()
    page.wait_for_selector("[role=alert]:has-text('Not this sum.')")
    page.get_by_role("navigation").get_by_role("link", name="Overview").click()
    overview.wait_drawn()
