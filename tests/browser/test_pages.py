"""The way between pages: one document, real links, addresses that back and forward go through."""

from __future__ import annotations

from tests.browser.conftest import Overview


def test_pages_follow_each_other_without_loading_the_app_again(overview: Overview) -> None:
    page = overview.open("?view=physical").page
    loads: list[str] = []
    page.on("load", lambda: loads.append(page.url))
    pages = page.get_by_role("navigation", name="Pages")
    pages.get_by_role("link", name="Findings").click()
    page.get_by_role("heading", name="Findings", exact=True).wait_for()
    assert page.title() == "Findings · Marey"
    page.get_by_role("button", name="Closed", exact=True).click()
    page.wait_for_url("**/findings?state=closed")
    pages.get_by_role("link", name="Findings").click()
    opened = page.get_by_role("button", name="Open", exact=True)
    overview.wait_until(lambda: opened.get_attribute("aria-pressed") == "true", "a fresh page")
    pages.get_by_role("link", name="Sources").click()
    page.get_by_role("heading", name="Sources", exact=True).wait_for()
    for _ in range(4):
        page.go_back()
    overview.wait_until(lambda: overview.layers() == ["rack", "host"], "the view it began with")
    assert loads == []


def test_a_page_that_does_not_exist_says_so_and_leads_back(overview: Overview) -> None:
    page = overview.page
    page.goto(f"{overview.url}/nothing/here")
    assert "/nothing/here" in page.get_by_role("alert").inner_text()
    page.get_by_role("link", name="Go to the overview", exact=True).click()
    page.wait_for_selector("[data-testid=canvas]")


def test_a_page_whose_code_does_not_come_keeps_the_navigation_and_comes_back(
    overview: Overview,
) -> None:
    page = overview.open().page
    overview.errors.permit("ERR_FAILED", "dynamically imported module")
    missing = ("**/assets/Findings-*.js", "**/healthz")
    for address in missing:
        page.route(address, lambda route: route.abort())
    pages = page.get_by_role("navigation", name="Pages")
    pages.get_by_role("link", name="Findings").click()
    page.get_by_text("The server is not responding. Retrying…").wait_for()
    assert pages.get_by_role("link", name="Jobs").is_visible()
    for address in missing:
        page.unroute(address)
    page.get_by_role("heading", name="Findings", exact=True).wait_for()


def test_on_paper_a_page_is_light_and_keeps_its_words(overview: Overview) -> None:
    page = overview.page
    colour = "getComputedStyle(document.body).getPropertyValue('--text').trim()"
    page.goto(f"{overview.url}/waste?since=24h")
    page.wait_for_selector("[data-testid=waste-table] tbody tr")
    dark = page.evaluate(colour)
    page.emulate_media(media="print")
    overview.wait_until(lambda: page.evaluate(colour) != dark, "the light theme")
    assert page.get_by_role("columnheader", name="Findings").get_by_role("button").is_visible()
    assert not page.get_by_role("button", name="7 days").is_visible()
    page.emulate_media(media="screen")
    overview.wait_until(lambda: page.evaluate(colour) == dark, "the reader's theme again")
    page.goto(f"{overview.url}/findings?state=all")
    row = page.locator("[data-testid=findings] li button").first
    row.wait_for()
    page.emulate_media(media="print")
    assert row.is_visible()
