"""Jobs, people, search, findings and waste in a real browser, and axe-core on every page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from scripts.page_pictures import list_pages
from tests.browser.conftest import Demo, Overview

AXE = Path(__file__).resolve().parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"


def open_page(window: Overview, path: str) -> Any:
    window.page.goto(window.url + path)
    return window.page


def total(page: Any) -> int:
    return int(page.get_attribute("[data-testid=jobs-total]", "data-total") or -1)


def test_the_first_page_load_already_shows_findings_and_waste(
    overview: Overview, demo: Demo
) -> None:
    found = demo.get("/findings")
    assert found["rows"]
    assert found["preparing"] is False
    page = open_page(overview, "/waste?since=24h")
    page.wait_for_selector("[data-testid=waste-table] tbody tr")
    assert page.locator("[data-testid=waste-trend] rect").count() > 10


def test_a_job_is_found_in_the_table_and_leads_to_its_page(overview: Overview, demo: Demo) -> None:
    page = open_page(overview, "/jobs")
    page.wait_for_selector("[data-testid=job-row] a")
    everyone = total(page)
    assert everyone > 50
    page.get_by_role("button", name="Running", exact=True).click()
    page.wait_for_url("**/jobs?state=running*")
    overview.wait_until(lambda: 0 < total(page) < everyone, "only running jobs")
    page.get_by_role("button", name=re.compile("^GPUs")).click()
    page.wait_for_url("**sort=gpus*")
    row = page.locator("[data-testid=job-row]").first
    name = row.get_by_role("cell").nth(2).inner_text()
    row.get_by_role("link", name=name, exact=True).click()
    page.wait_for_selector("[data-testid=workload-facts]")
    page.get_by_role("heading", level=1).filter(has_text=name).wait_for()
    facts = page.inner_text("[data-testid=workload-facts]")
    assert "Other runs of this name or experiment" in facts
    assert page.get_by_role("navigation", name="Pages").get_by_role("link", name="Jobs").count()


def test_the_table_of_jobs_is_filtered_chosen_saved_and_downloaded(
    overview: Overview, demo: Demo
) -> None:
    page = open_page(overview, "/jobs?state=running")
    page.wait_for_selector("[data-testid=job-row] a")
    running = total(page)
    page.get_by_role("button", name="Filter", exact=True).click()
    page.get_by_label("Field").select_option("GPUs requested")
    page.get_by_label("Value").fill("8")
    page.get_by_role("button", name="Apply").click()
    overview.wait_until(lambda: 0 < total(page) < running, "only large jobs")
    page.keyboard.press("Escape")
    sizes = page.locator("[data-testid=job-row]").first
    assert int(sizes.get_by_role("cell").nth(6).inner_text()) >= 8
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("Findings").uncheck()
    page.keyboard.press("Escape")
    page.get_by_role("columnheader", name="vs. peers").wait_for()
    assert page.get_by_role("columnheader", name="Findings").count() == 0
    page.get_by_role("button", name="Saved").click()
    page.get_by_label("Save these filters as").fill("large ones")
    page.get_by_role("button", name="Save", exact=True).click()
    overview.wait_until(lambda: "jobs: large ones" in demo.get("/views"), "the saved table")
    shared = page.url
    other = open_page(overview, "/jobs")
    other.goto(shared)
    overview.wait_until(lambda: 0 < total(page) < running, "the shared table")
    with page.expect_download() as download:
        page.get_by_test_id("jobs-csv").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert (
        len(lines) - 1
        == demo.get(
            "/jobs?limit=1&state=running&where="
            + quote('{"field":"gpus_requested","op":"ge","value":8}')
        )["total"]
    )
    row = page.locator("[data-testid=job-row]").first
    row.get_by_role("link", name=re.compile("^Traces of job")).click()
    page.wait_for_url("**/traces?workload=*")
    page.go_back()
    page.wait_for_selector("[data-testid=job-row] a")
    row.get_by_role("link", name=re.compile("on the overview$")).click()
    page.wait_for_selector("[data-testid=card]")


@pytest.mark.parametrize("state", ["failed", "completed", "cancelled", "running"])
def test_a_job_of_every_state_has_a_page(overview: Overview, demo: Demo, state: str) -> None:
    job = demo.get(f"/jobs?state={state}&sort=gpu_hours&limit=1")["rows"][0]
    page = open_page(overview, f"/workload?id={job['workload']}")
    page.wait_for_selector("[data-testid=workload-facts]")
    page.get_by_role("heading", level=1).filter(has_text=job["name"]).wait_for()
    facts = page.inner_text("[data-testid=workload-facts]")
    assert state in facts
    assert job["user"] in facts
    page.locator("[data-testid=finding], [data-testid=notice]").first.wait_for()


def test_a_job_that_waits_has_a_page_too(overview: Overview, demo: Demo) -> None:
    waiting = demo.get("/jobs?state=pending&limit=1")["rows"]
    assert waiting, "a busy Wednesday has a queue"
    page = open_page(overview, f"/workload?id={waiting[0]['workload']}")
    page.wait_for_selector("[data-testid=workload-facts]")
    assert "waiting" in page.inner_text("[data-testid=workload-facts]")


def test_search_finds_a_person_from_any_page(overview: Overview, demo: Demo) -> None:
    user = demo.get("/jobs?state=running&limit=1")["rows"][0]["user"]
    page = open_page(overview, "/sources")
    page.get_by_role("heading", name="Sources", exact=True).wait_for()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill(user)
    page.locator("[role=option]", has_text=user).filter(has_text="user").first.wait_for()
    page.locator("[role=option]", has_text=user).filter(has_text="user").first.click()
    page.wait_for_url(f"**/about?user={user}*")
    page.wait_for_selector("[data-testid=entity-jobs]")
    assert user in page.get_by_role("heading", level=1).inner_text()


def test_search_finds_jobs_hosts_rules_pages_and_commands(overview: Overview, demo: Demo) -> None:
    past = demo.get("/jobs?state=completed&limit=1")["rows"][0]
    unit = demo.get("/cluster?metrics=util")["units"][0]
    rule = demo.get("/rules")["rows"][0]
    page = open_page(overview, "/waste")
    page.get_by_role("heading", name="Wasted GPU-hours").wait_for()
    page.keyboard.press("/")
    field = page.get_by_role("combobox")
    for typed, kind in (
        (past["workload"], "job"),
        (unit["host"], "host"),
        (rule["title"], "rule"),
        ("Capacity", "page"),
        ("Switch", "command"),
    ):
        field.fill(typed)
        page.get_by_role("option").filter(has_text=re.compile(f"^{kind}", re.I)).first.wait_for()
    field.fill("no such thing at all")
    page.get_by_text("No matches.").wait_for()
    field.fill("Capacity")
    page.get_by_role("option").filter(has_text="Capacity").first.wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Capacity").wait_for()


def test_every_kind_of_page_is_reached_by_names_on_others(overview: Overview, demo: Demo) -> None:
    job = demo.get("/jobs?state=running&sort=gpus&limit=1")["rows"][0]
    page = open_page(overview, f"/workload?id={job['workload']}")
    facts = page.locator("[data-testid=workload-facts]")
    host = demo.get(f"/workloads/{job['workload']}")["allocations"][0]["gpu"].partition(":")[0]
    for kind, name in (
        ("project", job["project"]),
        ("partition", job["partition"]),
        ("host", host),
    ):
        facts.get_by_role("link", name=name, exact=True).first.click()
        page.wait_for_url(f"**/about?{kind}={name}*")
        page.wait_for_selector("[data-testid=entity-jobs]")
        page.go_back()
        facts.wait_for()


def test_findings_are_grouped_narrowed_and_acknowledged_together(
    overview: Overview, demo: Demo
) -> None:
    page = open_page(overview, "/findings?group=workload&state=all")
    page.wait_for_selector("[data-testid=findings] li")
    hours = [row["gpu_hours"] for row in demo.get("/findings")["rows"]]
    assert hours
    box = page.get_by_role("checkbox").first
    box.check()
    page.get_by_role("toolbar").get_by_role("button", name="Acknowledge").click()
    overview.wait_until(
        lambda: any(row["acknowledged"] for row in demo.get("/findings")["rows"]), "a word"
    )


def test_a_finding_opens_with_its_plot_and_the_diagnosis_of_that_time(
    overview: Overview, demo: Demo
) -> None:
    found = max(demo.get("/findings?limit=500")["rows"], key=lambda row: row["gpu_hours"])
    page = open_page(overview, f"/findings?state=all&id={found['id']}")
    plot = page.get_by_test_id("finding-plot")
    plot.locator("svg polyline").first.wait_for()
    assert len((plot.locator("polyline").first.get_attribute("points") or "").split()) > 30
    assert plot.locator("title", has_text="opened").count() >= 1
    page.get_by_role("link", name=f"Diagnose {found['workload']}").click()
    page.wait_for_url("**/workload?*from=*")
    page.wait_for_selector("[data-testid=window]")


def test_a_host_leads_to_its_gpus_findings_and_hardware_events(
    overview: Overview, demo: Demo
) -> None:
    found = next(row for row in demo.get("/findings?limit=500")["rows"] if row["gpus"])
    gpu = found["gpus"][0]
    host, _, index = gpu.rpartition(":")
    page = open_page(overview, f"/about?host={host}")
    page.get_by_test_id("entity-findings").get_by_role(
        "link", name=found["workload"]
    ).first.wait_for()
    page.get_by_role("region", name="Hardware events").wait_for()
    page.get_by_role("link", name=re.compile(rf"^{index}\b")).click()
    page.wait_for_url("**/about?gpu=*")
    page.get_by_role("link", name=host, exact=True).wait_for()
    page.get_by_test_id("entity-findings").get_by_role("link").first.wait_for()


def test_user_c_sees_what_a_policy_change_does_to_small_jobs(
    overview: Overview, demo: Demo
) -> None:
    """Section 8 of the paper: an operator changes the policy and watches who waits."""
    before = demo.get("/simulation")
    other = next(name for name in before["policies"] if name != before["policy"])
    page = overview.open().page
    try:
        page.get_by_test_id("policy").click()
        page.get_by_label("Policy", exact=True).select_option(other)
        overview.wait_until(lambda: demo.get("/capacity?points=4")["changes"], "the change")
        page.keyboard.press("Escape")
        overview.follow("Capacity")
        change = page.locator("[data-testid=policy-change]").first
        change.wait_for()
        assert other in change.get_by_role("heading").inner_text().replace(" ", "_")
        told = change.get_by_role("row", name=re.compile("Median wait, 1 GPU"))
        assert "started" in told.inner_text()
        trends = page.locator("[data-testid=capacity-trends]")
        assert trends.get_by_role("img").count() == 4
        assert trends.locator("title", has_text=other).count() == 4, "a marker on every curve"
    finally:
        demo.put("/simulation", {"policy": before["policy"]})


def test_a_user_has_a_digest_and_a_wallboard_shows_the_canvas_alone(
    overview: Overview, demo: Demo
) -> None:
    user = demo.get("/jobs?state=running&limit=1")["rows"][0]["user"]
    page = open_page(overview, f"/about?user={user}")
    with page.expect_popup() as opened:
        page.click("[data-testid=digest]")
    opened.value.get_by_role("heading", name=user).wait_for()
    assert "GPU-hours" in opened.value.inner_text("p")
    overview.open("?wall=1")
    assert not page.get_by_role("navigation").is_visible()
    assert page.locator("[data-testid=number-gpus]").is_visible()


# What pages once said, and operators would not.
NOT_SAID = re.compile(
    "read what has been measured|Nothing is called that|Hold the picture|GPUs asked for"
    "|Place in the queue|Alike by|Its life|Least and greatest|% sure|nobody is told"
    "|Somebody looks after it|source answers|Newest fact|with little of the GPU",
    re.IGNORECASE,
)


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_axe_the_console_and_plain_words_find_nothing_to_complain_about(
    overview: Overview, demo: Demo, theme: str
) -> None:
    page, said = overview.page, list[str]()
    page.emulate_media(color_scheme=theme)
    for name, path in list_pages(demo.url).items():
        open_page(overview, path)
        page.wait_for_selector("h1", state="attached")
        page.wait_for_load_state("networkidle")
        page.evaluate(AXE.read_text())
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        said += [
            f"{name}: {one['id']}: {one['nodes'][0]['html'][:160]}" for one in found["violations"]
        ]
        said += [f"{name}: {words}" for words in NOT_SAID.findall(page.inner_text("body"))]
        said += [f"{name}: {error}" for error in overview.errors]
        overview.errors.clear()
    assert said == []
