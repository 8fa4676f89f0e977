"""Journeys 7 and 8: live, robust, and reachable by everyone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import GPUS, Demo, Overview, open_window, start_demo
from tests.waiting import free_port


def shown_time(overview: Overview) -> str:
    return str(overview.page.get_attribute("[data-testid=live] time", "datetime"))


def test_the_picture_lives_and_can_be_held(overview: Overview) -> None:
    page = overview.open().page
    first = shown_time(overview)
    overview.wait_until(lambda: shown_time(overview) != first, "time to go on")
    overview.hold()
    held = page.inner_text("[data-testid=held]")
    page.wait_for_timeout(1500)
    assert page.inner_text("[data-testid=held]") == held
    overview.wait_until(lambda: "hold=1" in page.url, "the hold in the address")
    page.get_by_role("button", name="Resume").click()
    page.wait_for_selector("[data-testid=live]")


def test_the_numbers_are_the_servers_numbers(overview: Overview, demo: Demo) -> None:
    overview.open()
    overview.hold()
    shown = {name: overview.number(name) for name in ("gpus", "allocated", "idle", "broken")}
    assert shown["gpus"] == GPUS == shown["allocated"] + shown["idle"] + shown["broken"]
    assert 0 < overview.number("meanUtil") <= 100
    assert overview.page.locator("[data-testid^=number-] svg path[d^=M]").count() >= 6
    overview.page.get_by_label("Add condition").select_option("workload")
    overview.wait_until(lambda: overview.number("gpus") == shown["allocated"], "the filter's count")


def test_a_lost_connection_is_shown_and_recovers_by_itself(browser: Any, tmp_path: Path) -> None:
    arguments = ("--gpus", "64", "--hours", "1", "--speed", "20", "--store", "demo.duckdb")
    # Not a port that the kernel may give to the page's own attempts to connect meanwhile.
    port = str(free_port())
    demo = start_demo(*arguments, "--port", port, folder=tmp_path)
    # By the printed link, as a person comes: the key in a header would end with the first server.
    window = open_window(browser, demo, as_owner=False, reduced_motion="reduce")
    overview = next(window)
    overview.errors.permit(
        "ERR_CONNECTION_(REFUSED|RESET)|ERR_EMPTY_RESPONSE|WebSocket connection to"
    )
    try:
        page = overview.open(demo.link.removeprefix(f"{demo.url}/")).page
        demo.stop()
        page.wait_for_selector("[data-testid=connection]")
        assert "Connection lost" in page.inner_text("[data-testid=connection]")
        assert overview.units() > 0, "what was last known stays on screen"
        demo = start_demo(*arguments, "--port", port, folder=tmp_path)
        page.wait_for_selector("[data-testid=live]")
    finally:
        with pytest.raises(StopIteration):
            next(window)
        demo.stop()


def test_every_control_has_a_name_and_is_reached_by_keyboard(overview: Overview) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, [tabindex="0"], a')]
            .filter(e => e.type !== 'file' && e.checkVisibility({visibilityProperty: true}))
            .filter(e => !(e.getAttribute('aria-label') || e.labels?.[0]?.innerText
                           || e.innerText?.trim() || e.title))
            .map(e => e.outerHTML.slice(0, 120))"""
    )
    assert nameless == []
    wanted = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, a, [tabindex="0"]')]
            .filter(e => e.offsetParent && !e.disabled && e.tabIndex >= 0)
            .filter(e => e.checkVisibility({visibilityProperty: true})).length"""
    )
    page.evaluate("document.body.focus()")
    reached = set()
    for _ in range(wanted + 10):
        page.keyboard.press("Tab")
        place = page.evaluate(
            """() => [...document.querySelectorAll('button, select, input, a, [tabindex="0"]')]
                .indexOf(document.activeElement)"""
        )
        reached.add(place)
    assert len(reached - {-1}) >= wanted


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_text_has_the_contrast_that_aa_asks_for(overview: Overview, demo: Demo, theme: str) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    if theme == "light":
        page.get_by_role("button", name="Switch to light theme").click()
    gpu = demo.get("/cluster?metrics=util")["units"][0]["gpu"]
    overview.click_unit(gpu)
    weak = page.evaluate(CONTRAST)
    assert weak == []


CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.9) return colour;
    }
    return [255, 255, 255];
  };
  const weak = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.offsetParent || e.closest('.visually-hidden, option')) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) weak.push(`${e.textContent.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return weak;
}"""


def test_it_draws_without_webgl(overview: Overview) -> None:
    overview.page.add_init_script(
        "const real = HTMLCanvasElement.prototype.getContext;"
        "HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {"
        "  return kind.startsWith('webgl') ? null : real.call(this, kind, ...rest); };"
    )
    page = overview.open("?view=physical").page
    overview.hold()
    assert page.get_attribute("[data-testid=canvas]", "data-renderer") == "software"
    colours = page.evaluate(
        """() => { const canvas = document.querySelector('[data-testid=canvas] canvas');
            const { width, height } = canvas;
            const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
            return new Set(new Uint32Array(data.buffer)).size; }"""
    )
    assert colours > 5


@pytest.mark.parametrize("width", [480, 820])
def test_a_narrow_window_keeps_everything_in_reach(
    browser: Any, demo: Demo, width: int, need_program: Callable[..., str]
) -> None:
    viewport = {"width": width, "height": 800}
    for overview in open_window(browser, demo, viewport=viewport, reduced_motion="reduce"):
        page = overview.open("?panel=0").page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.get_by_role("button", name="Show panel").click()
        page.wait_for_selector("section[aria-label=Layers]")
        assert page.get_by_label("Find a host, user or workload").is_visible()
