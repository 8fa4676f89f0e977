"""A rule from its first word to the marks on the canvas: counted, tried, saved, filtered by."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from marey.model.access.current import get_process_identity
from tests.browser.conftest import Demo, Overview

# Most workloads of the demo are at work: at its moment the rule matches many, and not all.
TEXT = "util p95 > 95% and runtime > 1m"


@pytest.fixture(autouse=True)
def prepared(demo: Demo, overview: Overview) -> Iterator[None]:
    """The rules have read their history; what a journey saves is taken away again."""
    overview.wait_until(lambda: demo.get("/verdicts")["time_ms"], "the first verdicts")
    yield
    for row in demo.send("GET", "/rules")["rows"]:
        if row["origin"] == "server":
            demo.send("DELETE", f"/rules/{row['id']}")


def open_editor(overview: Overview, query: str = "?view=workloads") -> Any:
    page = overview.open(query).page
    page.get_by_test_id("rule-new").click()
    page.wait_for_selector("[data-testid=rule-editor]")
    return page.get_by_test_id("rule-editor")


def write(overview: Overview, editor: Any, text: str) -> None:
    editor.get_by_role("button", name="Text").click()
    overview.page.get_by_test_id("rule-when").fill(text)


def counted(overview: Overview) -> str:
    """The live count, once it is that of the present text."""
    page = overview.page

    def there() -> str | None:
        count = page.get_by_test_id("rule-count")
        text = count.inner_text()
        ready = count.get_attribute("data-counting") == "false" and "running" in text
        return text if ready else None

    return str(overview.wait_until(there, "a live count"))


def test_a_mistake_is_shown_at_its_place_with_the_nearest_word(overview: Overview) -> None:
    editor = open_editor(overview)
    page = overview.page
    overview.errors.permit("status of 422 .*/rules-(check|preview)")
    write(overview, editor, TEXT.replace("util", "utl"))
    page.wait_for_selector("[data-testid=rule-error]:has-text('column 1')")
    assert page.locator("[data-testid=rule-text-box] mark").inner_text() == "utl"
    assert page.get_by_test_id("rule-when").get_attribute("aria-invalid") == "true"
    editor.get_by_role("button", name="Use util").click()
    assert page.get_by_test_id("rule-when").input_value() == TEXT
    assert "match now" in counted(overview)
    # The same rule as fields, in step with the text.
    editor.get_by_role("button", name="Fields").click()
    assert page.get_by_test_id("condition-fields").count() == 2
    page.get_by_label("Value with unit").first.fill("sixty")
    page.wait_for_selector("[data-testid=condition-fields] [role=alert]")
    assert page.get_by_label("Value with unit").first.get_attribute("aria-invalid") == "true"
    page.get_by_label("Value with unit").first.fill("60%")
    # The first one negates both together, the second the first condition.
    editor.get_by_role("button", name="not").nth(1).click()
    assert page.get_by_test_id("rule-as-text").inner_text() == "not util p95 > 60% and runtime > 1m"
    counted(overview)


def test_what_always_holds_is_warned_about(overview: Overview) -> None:
    editor = open_editor(overview)
    write(overview, editor, "util mean >= 0%")
    overview.page.wait_for_selector("[data-testid=rule-editor] p[role=alert]:not(:empty)")


def test_a_rule_is_kept_as_ones_own(overview: Overview, demo: Demo) -> None:
    editor = open_editor(overview)
    page = overview.page
    write(overview, editor, TEXT)
    editor.get_by_role("button", name="My rule").click()
    editor.get_by_text("only for your workloads").wait_for()
    editor.get_by_label("Title").fill("Only mine")
    page.get_by_test_id("save-rule").click()
    editor.wait_for(state="detached")
    rows = demo.send("GET", "/rules")["rows"]
    (mine,) = [row for row in rows if row["id"].startswith("only-mine.p-")]
    # Somebody else on this machine does not see it.
    assert mine["id"] not in {row["id"] for row in demo.get("/rules")["rows"]}
    assert (mine["scope"], mine["owner"]) == ("personal", get_process_identity().user)
    assert overview.errors == []


def test_a_saved_rule_is_marked_on_groups_drawn_as_bars_and_filtered_by(
    overview: Overview, demo: Demo
) -> None:
    editor = open_editor(overview)
    page = overview.page
    write(overview, editor, TEXT)
    assert "match now" in counted(overview)
    editor.get_by_role("button", name="Site rule").click()
    editor.get_by_label("Title").fill("At work")
    page.get_by_test_id("save-rule").click()
    chip = page.get_by_test_id("chip-rule.at-work")
    chip.wait_for()
    assert demo.get("/rules/at-work")["when"] == TEXT

    # Zoomed out each group that holds a violating unit has the rule's mark.
    def marks(kind: str) -> list[dict[str, Any]]:
        found = page.evaluate("window.marey.ruleMarks()")
        return [m for m in found if m["rule"] == "rule.at-work" and m["kind"] == kind]

    page.mouse.move(700, 500)
    page.mouse.wheel(0, 500)
    overview.wait_until(lambda: marks("dot"), "marks on groups")
    held = {w for r in demo.get("/verdicts")["rules"] if r["rule"] == "at-work"
            for w in r["life"]["workloads"] + r["now"]["workloads"]}  # fmt: skip
    named = {m["group"].rsplit(" · ", 1)[-1] for m in marks("dot")}
    assert named & held
    # Zoomed in there are bars; pointing at one lights the rule's units and says what it is.
    overview.hold()
    page.mouse.move(700, 450)
    for _ in range(6):
        if marks("bar"):
            break
        page.mouse.wheel(0, -300)
        page.wait_for_timeout(300)

    def pointed_at() -> dict[str, Any] | None:
        """A bar under the mouse, once the zoom no longer moves it away."""
        for bar in marks("bar")[:1]:
            page.mouse.move(bar["x"] + 3, bar["y"] + bar["h"] / 2)
            page.mouse.move(bar["x"] + 4, bar["y"] + bar["h"] / 2)
            page.wait_for_timeout(250)
            if page.get_by_test_id("rule-lit").count() and bar in marks("bar"):
                return bar
        return None

    bar = overview.wait_until(pointed_at, "a bar that stands still and lights its rule")
    assert 0 < bar["any"] <= 1
    overview.wait_until(
        lambda: TEXT in page.get_by_test_id("rule-lit").inner_text(), "the rule that is lit"
    )
    assert chip.get_attribute("data-lit") == "true"
    assert "units" in page.inner_text("[data-testid=tooltip]")
    # A click selects them, and the card lists the rule for the keyboard.
    page.mouse.click(bar["x"] + 4, bar["y"] + bar["h"] / 2)
    assert "At work" in page.get_by_test_id("card-rules").inner_text()
    page.get_by_role("button", name="Close", exact=True).click()

    before = overview.units()
    chip.click()
    page.get_by_test_id("rule-details").get_by_role("button", name="Filter").click()
    overview.wait_until(lambda: 0 < overview.units() < before, "only violating units")
    page.get_by_test_id("rule-details").get_by_role("button", name="Colour").click()
    overview.wait_until(lambda: "rule.at-work" in urllib.parse.unquote(page.url), "the address")
    words = {row[0] for row in page.evaluate('window.marey.rows(["rule.at-work"])')}
    assert words <= {"violated now", "violated over its life"}
    assert "violated now" in page.inner_text("section[aria-label=Colour]")


def test_a_lens_lives_in_the_address_and_opens_no_finding(overview: Overview, demo: Demo) -> None:
    editor = open_editor(overview)
    page = overview.page
    write(overview, editor, TEXT)
    counted(overview)
    editor.get_by_label("Lens name").fill("my lens")
    page.get_by_test_id("save-lens").click()
    page.get_by_test_id("chip-lens.my lens").wait_for()
    overview.wait_until(lambda: "my+lens" in page.url, "the lens in the address")
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(page.url).query)
    assert json.loads(query["doc"][0])["lenses"] == [{"name": "my lens", "when": TEXT}]
    assert all(row["id"] != "my-lens" for row in demo.get("/rules")["rows"])
    page.reload()
    chip = page.get_by_test_id("chip-lens.my lens")
    chip.wait_for()
    # Without a mouse: to the chip, open it, and take the lens away.
    chip.focus()
    assert TEXT in page.get_by_test_id("rule-lit").inner_text()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Remove lens").focus()
    page.keyboard.press("Enter")
    chip.wait_for(state="detached")


def test_a_back_test_shows_progress_is_cancelled_and_tells_what_it_found(
    overview: Overview, demo: Demo
) -> None:
    editor = open_editor(overview)
    page = overview.page
    write(overview, editor, TEXT)
    counted(overview)
    # Work before it, so that there is time to look at it and to stop it.
    for _ in range(2):
        demo.send("POST", "/backtests", {"when": TEXT, "since": "30d"})
    page.get_by_test_id("backtest-start").click()
    page.get_by_test_id("backtest-progress").wait_for()
    page.get_by_test_id("backtest-cancel").click()
    page.wait_for_selector("section[aria-label='Back-test']:has-text('Cancelled')")
    page.get_by_label("over the last").fill("4h")
    page.get_by_test_id("backtest-start").click()
    results = page.get_by_test_id("backtest-results")
    results.wait_for()
    assert "findings per day" in results.inner_text()
    assert results.locator("a[href^='/workload?id=']").count() > 0


def test_a_rule_has_exceptions_for_a_partition_that_are_saved_and_shown(
    overview: Overview, demo: Demo
) -> None:
    editor = open_editor(overview)
    page = overview.page
    write(overview, editor, "util p95 > $busy and runtime > 1m")
    # A threshold that the text names is asked for; until then there is nothing to count.
    assert editor.get_by_text("Give $busy a value").is_visible()
    assert page.get_by_test_id("rule-count").inner_text() == "–"
    editor.get_by_label("$busy").fill("50%")
    counted(overview)
    editor.get_by_role("button", name="Site rule").click()
    editor.get_by_label("Title").fill("At work here")
    page.get_by_test_id("add-override").click()
    assert page.get_by_test_id("save-rule").is_disabled()
    partition = demo.get("/workloads?limit=1")["rows"][0]["partition"]
    exception = editor.get_by_test_id("override")
    exception.get_by_label("Partition").fill(partition)
    exception.get_by_label("$busy").fill("90%")
    page.get_by_test_id("save-rule").click()
    chip = page.get_by_test_id("chip-rule.at-work-here")
    chip.wait_for()
    saved = demo.get("/rules/at-work-here")
    assert saved["thresholds"] == {"busy": "50%"}
    assert saved["override"] == [{"partition": partition, "thresholds": {"busy": "90%"}}]
    chip.click()
    said = page.get_by_test_id("rule-exceptions").inner_text()
    assert f"partition {partition}: $busy = 90%" in said


def test_the_card_of_a_workload_shows_its_whole_life_from_the_sketches(
    overview: Overview, demo: Demo
) -> None:
    running = demo.get("/workloads?state=running&limit=200")["rows"]
    oldest = min(running, key=lambda row: row["start_ms"])["workload"]
    chosen = [{"field": "workload", "op": "eq", "value": oldest}]
    page = overview.open(f"?view=workloads&sel={urllib.parse.quote(json.dumps(chosen))}").page
    shown = page.get_by_test_id("life-util")
    shown.wait_for()
    life = demo.get(f"/life-statistics?workload={oldest}&metrics=util&statistics=p5,median,p95")
    medians = [gpu["util"]["median"] for gpu in life.values()]
    said = float(shown.inner_text().split()[0].rstrip("%\u2009\u202f"))
    # Samples came in between: the sketch's own step is one percent.
    assert min(medians) - 2 <= said <= max(medians) + 2
    assert "5–95 %" in (shown.get_attribute("title") or "")
