"""The queue page in a real browser: why, before submitting, the record, the laboratory."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, quote, urlsplit

from tests.browser.conftest import Demo, Overview


def test_the_queue_page_answers_why_when_and_what_if(overview: Overview, demo: Demo) -> None:
    waiting = demo.get("/queue?limit=2000")
    page = overview.page
    page.goto(overview.url + "/queue")
    if not waiting["total"]:
        page.wait_for_selector("[data-testid=queue-empty], [data-testid=queue-table]")
    else:
        page.wait_for_selector("[data-testid=queue-table] tbody tr")
        page.locator("[data-testid=queue-table] tbody tr button").first.click()
        why = page.get_by_test_id("queue-why")
        why.get_by_text("Ahead in its partition").wait_for()
        # An interval from runs like it, or that there is not enough history.
        why.get_by_test_id("queue-speed").wait_for()
        # The explanation opens under the row it belongs to.
        assert page.locator("[data-testid=queue-table] [data-testid=queue-why]").count() == 1
        why.get_by_role("button", name="Close").click()
        why.wait_for(state="detached")
    page.get_by_role("button", name="When would it start?").click()
    page.wait_for_selector("[data-testid=queue-asked]")
    page.wait_for_selector("[data-testid=queue-free] tbody tr")
    page.wait_for_selector("[data-testid=queue-fairness] tbody tr")
    page.wait_for_selector("[data-testid=queue-record]")
    lab = page.get_by_role("region", name="Policy laboratory")
    # Where it cannot answer, it refuses; so it does what says nonsense.
    overview.errors.permit("status of 422 .*/queue-whatif")
    lab.get_by_label("Partition").select_option(index=0)
    lab.get_by_role("button", name="Replay").click()
    # An answer, a refusal below the stated fidelity, or too little history: always in words.
    lab.locator("[data-testid=queue-policy], [role=alert]").first.wait_for()
    report = lab.get_by_test_id("queue-policy-report")
    if report.count():
        told = page.request.get(f"{overview.url}{report.get_attribute('href')}")
        assert told.headers["content-type"].startswith("text/html")
        assert "What another policy would do" in told.text()
    # A whole policy in JSON stands in place of the settings; one that says nonsense is refused.
    lab.get_by_text("Weights, limits").click()
    lab.get_by_role("textbox", name="A whole policy").fill('{"order": "by mood"}')
    lab.get_by_role("button", name="Replay").click()
    lab.get_by_role("alert").filter(has_text="by mood").wait_for()


def test_the_line_takes_predicates_and_keeps_them_in_its_address(
    overview: Overview, demo: Demo
) -> None:
    """The filter of the table of jobs: conditions, a text, both in the address."""
    rows = demo.get("/queue?limit=2000")["rows"]
    # Whoever waits longest: it does not start while the page opens.
    last = max(rows, key=lambda row: row["p50_s"] or 0.0)
    page = overview.page
    page.goto(overview.url + "/queue")
    table = page.get_by_test_id("queue-table")
    table.locator("tbody tr").first.wait_for()
    page.get_by_role("button", name="Filter").click()
    page.get_by_label("Field").select_option("workload")
    page.get_by_label("Value").fill(last["workload"])
    page.get_by_role("button", name="Apply").click()
    page.get_by_test_id("queue-total").filter(has_text="1 of ").wait_for()
    assert table.locator("tbody tr").count() == 1
    assert json.loads(parse_qs(urlsplit(page.url).query)["where"][0]) == {
        "and": [{"field": "workload", "op": "eq", "value": last["workload"]}]
    }
    # Sent to somebody else, the address shows the same; a click on the condition takes it off.
    page.keyboard.press("Escape")
    page.reload()
    page.get_by_test_id("queue-total").filter(has_text="1 of ").wait_for()
    page.get_by_role("button", name=f"Job is {last['workload']}").click()
    overview.wait_until(lambda: "where" not in page.url, "the condition is off")
    page.get_by_label("Find").fill("no such name")
    page.get_by_label("Find").press("Enter")
    page.get_by_text("No waiting job matches.").wait_for()


def test_the_card_of_a_waiting_workload_answers_when(overview: Overview, demo: Demo) -> None:
    # Whoever waits longest: it does not start while the page opens.
    rows = demo.get("/queue?limit=2000")["rows"]
    name = max(rows, key=lambda row: row["p50_s"] or 0.0)["workload"]
    chosen = json.dumps([{"field": "workload", "op": "eq", "value": name}])
    page = overview.page
    page.goto(f"{overview.url}/?sel={quote(chosen)}")
    when = page.get_by_test_id("card-when")
    when.wait_for()
    assert "Expected in" in when.inner_text()
    assert "Forecast: " in when.inner_text()


def test_user_c_sees_before_the_change_that_small_workloads_would_starve(
    overview: Overview, demo: Demo
) -> None:
    # HPC²lusterScape's user C: small workloads starved after a policy change. Here somebody asks
    # what strict order with the largest first would do, before it is done.
    policy = {"order": "multifactor", "weights": {"size": 1e5}, "backfill": "none"}
    page = overview.open().page
    overview.follow("Queue")
    lab = page.get_by_role("region", name="Policy laboratory")
    lab.get_by_text("Weights, limits").click()
    lab.get_by_role("textbox", name="A whole policy").fill(json.dumps(policy))
    report = lab.get_by_test_id("queue-policy-report")
    overview.errors.permit("status of 422 .*/queue-whatif")
    # Where the record of a partition cannot be reproduced, the answer is refused: then the next.
    lab.locator("option", has_text="-small").first.wait_for(state="attached")
    offered = lab.get_by_label("Partition").locator("option").all_inner_texts()
    for partition in sorted(name for name in offered if name.endswith("-small")):
        lab.get_by_label("Partition").select_option(partition)
        lab.get_by_role("button", name="Replay").click()
        answered = lab.get_by_test_id("queue-policy").filter(has_text=f" of {partition}.")
        answered.or_(lab.get_by_role("alert")).first.wait_for()
        if report.count():
            break
    loses = lab.get_by_test_id("queue-loses").locator("li")
    smallest = loses.filter(has_text="Workloads of 1 GPU wait ")
    assert "times as long" in smallest.inner_text()
    # The same by size, side by side, on the page and in the report that one hands on.
    sizes = lab.get_by_role("region", name="By size").locator("tbody tr")
    assert sizes.first.locator("td").first.inner_text() == "1"
    told = page.request.get(f"{overview.url}{report.get_attribute('href')}")
    assert smallest.inner_text().split(" wait ")[0] in told.text()
    assert "Mean wait now" in told.text()
