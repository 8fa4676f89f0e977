"""The stories of people in the paper (section 8), as journeys; C is among the pages of capacity."""

from __future__ import annotations

import re

from tests.browser.conftest import Demo, Overview


def test_user_a_plans_a_submission_from_the_queue_and_from_when_work_finishes(
    overview: Overview, demo: Demo
) -> None:
    """A looks at what is requested and when GPUs become free, and asks for what starts sooner."""
    page = overview.open("?view=waiting").page
    waiting = {row["workload"] for row in demo.get("/queue?limit=2000")["rows"]}
    assert waiting, "a busy Wednesday has a queue"
    kinds = {group["name"] for group in overview.groups(1)}
    requested = {w["resource_type"] for w in demo.get("/cluster?metrics=util")["workloads"]}
    assert kinds
    assert kinds <= {kind or "–" for kind in requested}
    overview.follow("Queue")
    page.wait_for_selector("[data-testid=queue-table] tbody tr")
    # When running work ends there is room: the table says how much, now and later.
    page.wait_for_selector("[data-testid=queue-free] tbody tr")
    ask = page.get_by_role("region", name="Before you submit")
    ask.get_by_role("textbox", name="GPUs", exact=True).fill("8")
    ask.get_by_label("Time limit").fill("4h")
    ask.get_by_role("button", name="When would it start?").click()
    page.wait_for_selector("[data-testid=queue-asked]")
    told = demo.get("/queue-ask?gpus=8&time=4h")
    said = page.inner_text("[data-testid=queue-asked]")
    assert words(told["asked"]["sentence"]) in words(said)
    # What would start sooner is offered, with the type and partition it would run on.
    offered = ask.get_by_role("listitem").all_inner_texts()
    assert len(offered) == len(told["alternatives"])
    for row in told["alternatives"]:
        assert any(row["partition"] in one for one in offered)


def test_user_b_learns_why_the_job_is_pushed_back(overview: Overview, demo: Demo) -> None:
    """B's job waits: who is ahead, what blocks it, whether anything changed since, and when."""
    rows = demo.get("/queue?limit=2000")["rows"]
    # Whoever waits longest: it does not start while the pages open.
    own = max(rows, key=lambda row: row["p50_s"] or 0.0)
    name = demo.get(f"/workloads/{own['workload']}")["name"]
    page = overview.open().page
    page.keyboard.press("Control+k")
    page.get_by_test_id("palette").get_by_role("combobox").fill(own["workload"])
    page.get_by_role("option").filter(has_text=own["workload"]).first.click()
    page.wait_for_selector("[data-testid=workload-facts]")
    page.get_by_role("heading", level=1).filter(has_text=name).wait_for()
    assert "waiting" in page.inner_text("[data-testid=workload-facts]")
    page.get_by_role("link", name="Why is it waiting?").click()
    page.wait_for_url("**/queue?*")
    why = page.get_by_test_id("queue-why")
    why.get_by_text("Ahead in its partition").wait_for()
    said = why.inner_text()
    assert own["workload"] in said
    told = demo.get(f"/queue/{own['workload']}")
    # What the server says is on the page; a number in it may have moved on with the clock.
    assert told["sentences"]
    assert words(told["sentences"][0]) in words(said)


def words(text: str) -> str:
    """Return a text without its numbers and white space."""
    return re.sub(r"[\d.,\s]+", " ", text)
