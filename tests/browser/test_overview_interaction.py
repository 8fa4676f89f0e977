"""Journeys 5 and 6: looking around, selecting, finding, and motion."""

from __future__ import annotations

import pytest

from tests.browser.conftest import GPUS, Demo, Overview


def first_gpu(demo: Demo, state: str = "allocated") -> dict[str, object]:
    units = demo.get("/cluster?metrics=util")["units"]
    return next(unit for unit in units if unit["state"] == state)


def test_wheel_drag_and_keys_zoom_and_pan_and_fit_brings_everything_back(
    overview: Overview,
) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    start = page.evaluate("window.marey.camera()")
    page.mouse.move(800, 400)
    page.mouse.wheel(0, -600)
    overview.wait_until(
        lambda: page.evaluate("window.marey.camera()")["scale"] > start["scale"] * 1.5, "zoom"
    )
    zoomed = page.evaluate("window.marey.camera()")
    page.mouse.down()
    page.mouse.move(700, 350, steps=3)
    page.mouse.up()
    panned = page.evaluate("window.marey.camera()")
    assert abs((panned["x"] - zoomed["x"]) * panned["scale"] - 100) < 8
    page.get_by_test_id("canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    assert page.evaluate("window.marey.camera()")["scale"] > panned["scale"]
    overview.wait_until(lambda: "cam=" in page.url, "the camera in the address")
    page.keyboard.press("0")
    overview.wait_until(
        lambda: abs(page.evaluate("window.marey.camera()")["scale"] - start["scale"]) < 1e-3, "fit"
    )


def test_arrow_keys_walk_over_groups_and_gpus_and_enter_opens_one(overview: Overview) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    page.get_by_test_id("canvas").focus()
    said = page.get_by_test_id("canvas-focus")
    page.keyboard.press("ArrowRight")
    overview.wait_until(lambda: said.inner_text().startswith("rack-"), "a rack")
    page.keyboard.press("Space")
    page.keyboard.press("Space")
    overview.wait_until(lambda: ":0" in said.inner_text(), "a GPU")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-testid=card]")
    assert "GPU" in overview.card()
    page.keyboard.press("Backspace")
    overview.wait_until(lambda: "GPUs" in said.inner_text(), "its host")


def test_packing_anew_is_a_button_and_my_work_asks_for_the_name_in_place(
    overview: Overview,
) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    page.get_by_role("button", name="Re-pack").click()
    overview.still()
    assert overview.units() == GPUS
    overview.preset("mine")
    page.get_by_test_id("ask-me").fill("nobody.atall")
    page.get_by_role("button", name="Show my work").click()
    page.wait_for_selector("[data-testid=ask-me]", state="detached")
    overview.wait_until(lambda: "me=nobody.atall" in page.url, "the name in the address")


def measured_gpus(overview: Overview) -> list[str]:
    """GPUs that have a utilization on the canvas; a silent one is shown without a value."""
    rows = overview.page.evaluate('window.marey.rows(["gpu", "util"])')
    return [gpu for gpu, util in rows if util is not None]


def test_hovering_says_what_a_unit_is(overview: Overview) -> None:
    page = overview.open("?view=physical").page
    overview.wait_until(lambda: measured_gpus(overview), "values on the canvas")
    overview.hold()
    gpu = overview.wait_until(lambda: measured_gpus(overview), "values while held")[0]
    place = overview.where("gpu", gpu)
    at = (place["x"] + place["width"] * 0.4, place["y"] + place["height"] * 0.4)
    page.mouse.move(at[0] - 40, at[1])
    page.mouse.move(*at, steps=4)
    # On the way there it passed others.
    overview.wait_until(
        lambda: gpu in page.inner_text("[data-testid=tooltip]"), "the unit's own name"
    )
    assert "GPU utilization" in page.inner_text("[data-testid=tooltip]")


def test_a_click_on_a_unit_opens_its_card(overview: Overview, demo: Demo) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    gpu = str(first_gpu(demo)["gpu"])
    overview.click_unit(gpu)
    text = overview.card()
    assert f"GPU {gpu}" in text
    for word in ("Host", "Rack", "Partition", "User", "Workload", "Running", "GPU utilization"):
        assert word in text
    overview.wait_until(
        lambda: page.locator("section[aria-label=Metrics] svg path[d^=M]").count() >= 2,
        "lines of history",
    )
    overview.wait_until(
        lambda: page.locator("[data-testid=bullet] b").count() >= 4, "the cluster's means"
    )
    # From the card to all of the user's units.
    user = page.locator("[data-testid=facts] div", has_text="User").locator("button").inner_text()
    page.get_by_role("button", name=f"Only {user}").click()
    overview.wait_until(lambda: overview.units() < GPUS, "only the user's units")
    assert overview.view()["filter"] == [{"field": "user", "op": "eq", "value": user}]


def test_a_click_on_a_label_opens_the_groups_card_and_more_can_be_added(
    overview: Overview, demo: Demo
) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    rack = overview.groups(1)[0]
    camera = page.evaluate("window.marey.camera()")
    box = page.get_by_test_id("canvas").bounding_box()
    x = box["x"] + (rack["x"] - camera["x"]) * camera["scale"] + 20
    y = box["y"] + (rack["y"] - camera["y"]) * camera["scale"] + 8
    page.mouse.click(x, y)
    text = overview.card()
    assert rack["name"] in text
    assert f"{int(rack['count'])} GPUs" in text
    elsewhere = next(
        unit["gpu"]
        for unit in demo.get("/cluster?metrics=util")["units"]
        if unit["rack"] != rack["name"]
    )
    overview.click_unit(elsewhere, "Shift")
    overview.wait_until(lambda: "2 selected" in overview.card(), "both on one card")
    assert f"{int(rack['count']) + 1} GPUs" in overview.card()
    page.get_by_test_id("canvas").focus()
    page.keyboard.press("Escape")
    page.get_by_test_id("card").wait_for(state="detached")


def test_the_card_of_a_group_lists_its_workloads_worst_first_and_what_one_can_do(
    overview: Overview,
) -> None:
    page = overview.open("?view=workloads").page
    overview.wait_until(lambda: measured_gpus(overview), "values on the canvas")
    overview.hold()
    rows = page.evaluate('window.marey.rows(["project", "workload", "util"])')
    jobs: dict[str, dict[str, list[float | None]]] = {}
    for project, workload, util in rows:
        if workload:
            jobs.setdefault(project, {}).setdefault(workload, []).append(util)
    # The group of the most jobs, at its name.
    group = max(overview.groups(1), key=lambda one: len(jobs.get(one["name"], ())))
    camera = page.evaluate("window.marey.camera()")
    box = page.get_by_test_id("canvas").bounding_box()
    x = box["x"] + (group["x"] - camera["x"]) * camera["scale"] + 12
    y = box["y"] + (group["y"] - camera["y"]) * camera["scale"] + 6
    page.mouse.click(x, y)
    worst = page.get_by_test_id("worst")
    worst.wait_for()
    assert group["name"] in overview.card()
    links = worst.get_by_role("link").all()
    shown = [(link.get_attribute("href") or "").partition("id=")[2] for link in links]
    unused = {name: leave_unused(values) for name, values in jobs[group["name"]].items()}
    listed = [unused[name] for name in shown]
    assert len(listed) == min(8, len(unused)) > 1
    assert listed == pytest.approx(sorted(unused.values(), reverse=True)[: len(listed)], abs=0.02)
    # Nothing of it is cut beside empty space, and the worst is one click away.
    assert page.locator("[data-testid=card]").evaluate(CUT_LABELS) == []
    links[0].click()
    page.wait_for_url(f"**/workload?id={shown[0]}*")
    page.wait_for_selector("[data-testid=workload-facts]")


CUT_LABELS = """(card) => [...card.querySelectorAll("th, dt, dd, h2, footer *")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.textContent)"""


def leave_unused(utils: list[float | None]) -> float:
    """Return how many whole GPUs' worth a workload leaves unused; nothing where none is known."""
    known = [util for util in utils if util is not None]
    return len(utils) * (100 - sum(known) / len(known)) / 100 if known else 0.0


def test_numbers_and_legend_tell_of_one_tick(overview: Overview) -> None:
    page = overview.open("?view=health").page
    page.wait_for_selector("[data-testid=legend-words] li")
    # Every frame is looked at, over several ticks.
    page.evaluate(
        """() => { window.apart = []; window.ticks = new Set();
            const count = (word) => {
              const row = [...document.querySelectorAll("[data-testid=legend-words] li")]
                .find((one) => one.querySelector("span")?.textContent === word);
              return Number(row?.querySelector("b").textContent.replace(/\\D/g, "") ?? 0);
            };
            const look = () => {
              for (const word of ["idle", "allocated"]) {
                const shown = document.querySelector(`[data-testid=number-${word}]`);
                const said = Number(shown.dataset.value);
                if (said !== count(word)) window.apart.push([word, said, count(word)]);
              }
              window.ticks.add(document.querySelector("[data-testid=live] time")?.dateTime);
              requestAnimationFrame(look);
            };
            look(); }"""
    )
    overview.wait_until(lambda: page.evaluate("window.ticks.size") >= 4, "several ticks")
    assert page.evaluate("window.apart") == []


def test_a_rectangle_drawn_with_shift_selects_what_it_touches(overview: Overview) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    box = page.get_by_test_id("canvas").bounding_box()
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 4, box["y"] + 4)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 4, box["y"] + box["height"] - 4, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    assert f"{GPUS:,} GPUs" in overview.card()


def test_filters_have_a_search_for_names_and_sliders_for_numbers(overview: Overview) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    # Its values are asked for at once.
    page.get_by_label("Add condition").select_option("state")
    page.get_by_label("Search State").fill("alloc")
    overview.wait_until(lambda: page.locator("[data-testid=words] li").count() == 1, "one word")
    page.locator("[data-testid=words] input").check()
    assert overview.view()["filter"] == [{"field": "state", "op": "in", "value": ["allocated"]}]
    page.keyboard.press("Escape")
    overview.wait_until(lambda: overview.units() == overview.number("allocated"), "the allocated")
    page.get_by_label("Add condition").select_option("util")
    page.get_by_label("Minimum GPU utilization").fill("60")
    assert overview.view()["filter"][1]["op"] == "between"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Remove condition 1").click()
    page.get_by_role("button", name="Remove condition 1").click()
    overview.wait_until(lambda: overview.units() == GPUS, "all units again")


def test_the_search_box_flies_to_a_host(overview: Overview, demo: Demo) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    host = str(first_gpu(demo)["host"])
    page.keyboard.press("/")
    page.keyboard.type(host)
    page.wait_for_selector("#search-results li")
    before = overview.where("host", host)
    page.keyboard.press("Enter")
    assert "8 GPUs" in overview.card()
    overview.wait_until(
        lambda: overview.where("host", host)["width"] > before["width"] * 1.5, "fly"
    )
    place, box = overview.where("host", host), page.get_by_test_id("canvas").bounding_box()
    assert box["x"] <= place["x"] <= box["x"] + box["width"]


def test_back_forward_and_reload_bring_back_what_was_on_screen(overview: Overview) -> None:
    page = overview.open("?view=physical").page
    overview.preset("health")
    overview.wait_until(lambda: "view=health" in page.url, "the address")
    overview.preset("fragmentation")
    overview.wait_until(lambda: "view=fragmentation" in page.url, "the address")
    page.go_back()
    overview.wait_until(lambda: overview.layers() == ["state", "host"], "the view before")
    page.go_back()
    overview.wait_until(lambda: overview.layers() == ["rack", "host"], "the first view")
    page.go_forward()
    overview.wait_until(lambda: overview.layers() == ["state", "host"], "forward again")
    page.reload()
    overview.wait_drawn()
    assert overview.layers() == ["state", "host"]


def test_units_move_to_their_new_places(moving_overview: Overview) -> None:
    overview = moving_overview
    page = overview.open("?view=physical").page
    overview.hold()
    # Every frame is looked at: from outside a short motion may be missed.
    page.evaluate(
        """() => { window.least = 1;
            const look = () => { window.least = Math.min(window.least, window.marey.progress());
                                 requestAnimationFrame(look); };
            look(); }"""
    )
    page.get_by_label("Layer 1 groups by").select_option("partition")
    overview.wait_until(lambda: page.evaluate("window.least < 1"), "something on its way")
    overview.still()
    assert page.evaluate("window.marey.progress()") == 1


def test_with_reduced_motion_nothing_moves(overview: Overview) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    page.get_by_label("Layer 1 groups by").select_option("partition")
    assert all(page.evaluate("window.marey.progress()") == 1 for _ in range(20))
    overview.wait_until(
        lambda: any("large" in group["name"] for group in overview.groups(1)), "the new layout"
    )
