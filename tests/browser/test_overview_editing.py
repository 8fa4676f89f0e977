"""Journeys 3 and 4: editing the view, and colour."""

from __future__ import annotations

import json
from pathlib import Path

from tests.browser.conftest import GPUS, Demo, Overview


def test_layers_are_moved_and_removed_by_keyboard(overview: Overview) -> None:
    page = overview.open("?view=workloads").page
    overview.hold()
    page.get_by_role("button", name="Layer 1, Project").focus()
    page.keyboard.press("ArrowDown")
    assert overview.layers() == ["user", "project", "workload"]
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused.startswith("Layer 2, Project")
    page.keyboard.press("Delete")
    assert overview.layers() == ["user", "workload"]


def test_an_attribute_is_dragged_into_the_hierarchy_and_a_layer_out_of_it(
    overview: Overview,
) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    chip = page.get_by_role("button", name="Partition", exact=True)
    chip.drag_to(page.get_by_test_id("layer-rack"), target_position={"x": 60, "y": 4})
    overview.wait_until(
        lambda: overview.layers() == ["partition", "rack", "host"], "the new layer on top"
    )
    # Near its upper edge: its middle may lie below the window.
    page.get_by_test_id("layer-rack").locator("[data-grip]").drag_to(
        page.get_by_test_id("add-layer"), target_position={"x": 40, "y": 6}
    )
    overview.wait_until(lambda: overview.layers() == ["partition", "host"], "the layer removed")


def test_a_view_is_saved_by_name_and_opened_again_elsewhere(overview: Overview, demo: Demo) -> None:
    name = "night <b>shift & day"
    page = overview.open("?view=physical").page
    page.get_by_role("button", name="Remove Host").click()
    page.click("[data-testid=view-button]")
    page.get_by_label("View name").fill(name)
    page.get_by_role("button", name="Save", exact=True).click()
    overview.wait_until(lambda: name in demo.get("/views"), "the view on the server")
    saved = demo.get("/views")[name]
    assert [layer["by"] for layer in saved["layers"]] == ["rack"]
    # The name is text, not markup.
    assert page.locator("[data-testid=view-list] b").count() == 0
    overview.wait_until(lambda: "saved" in page.url, "the address of the saved view")
    page.goto(page.url)
    overview.wait_drawn()
    assert overview.layers() == ["rack"]
    page.click("[data-testid=view-button]")
    page.get_by_role("button", name=f"Delete view {name}").click()
    overview.wait_until(lambda: name not in demo.get("/views"), "the view forgotten")


def test_an_edited_view_travels_in_its_link(overview: Overview) -> None:
    page = overview.open().page
    page.get_by_label("Layer 2 groups by").select_option("user")
    overview.wait_until(lambda: "doc=" in page.url, "the view in the address")
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    overview.wait_drawn()
    assert overview.layers() == ["pool", "user", "workload"]


def test_the_picture_is_exported_as_json_svg_and_png(overview: Overview, tmp_path: Path) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    files = {}
    for kind in ("JSON", "SVG", "PNG"):
        page.click("[data-testid=view-button]")
        with page.expect_download() as waiting:
            page.get_by_role("button", name=kind, exact=True).click()
        files[kind] = tmp_path / kind
        waiting.value.save_as(files[kind])
        page.keyboard.press("Escape")
    view = json.loads(files["JSON"].read_text())
    assert [layer["by"] for layer in view["layers"]] == ["rack", "host"]
    svg = files["SVG"].read_text()
    squares = sum(line.count("M") for line in svg.splitlines() if line.startswith("<path"))
    assert squares == GPUS + len(overview.groups(1)) + len(overview.groups(2))
    assert "rack-" in svg
    assert files["PNG"].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_wrong_document_is_refused_with_the_place_and_what_is_allowed(
    overview: Overview, tmp_path: Path
) -> None:
    page = overview.open("?view=physical").page
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"version": 1, "layers": [{"by": "host", "layout": "grid"}]}')
    page.click("[data-testid=view-button]")
    page.set_input_files("[data-testid=view-file]", wrong)
    said = overview.wait_until(
        lambda: page.inner_text("[data-testid=share-said]").strip(), "the reason for the refusal"
    )
    assert "$.layers[0].layout" in said
    assert "pack, fill_x, fill_y, list_x, list_y" in said
    assert overview.layers() == ["rack", "host"]


def test_colour_takes_any_attribute_scheme_and_scale(overview: Overview) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    page.get_by_label("Colour by").select_option("power")
    overview.wait_until(
        lambda: page.locator("[data-testid=legend-histogram] rect").count() > 10, "a histogram"
    )
    page.get_by_role("button", name="Colour settings").click()
    page.get_by_label("Scheme").select_option("viridis")
    page.get_by_role("button", name="quantile").click()
    page.get_by_label("Bins").fill("4")
    overview.wait_until(
        lambda: page.locator("[data-testid=legend-histogram] g").count() <= 4, "four bins"
    )
    page.get_by_role("button", name="log", exact=True).click()
    page.get_by_label("Minimum").fill("50")
    page.get_by_label("Maximum").fill("400")
    page.get_by_label("Rescale to filtered data").check()
    colour = overview.view()["colour"]
    assert (colour["scheme"], colour["scale"], colour["bins"]) == ("viridis", "log", 4)
    assert (colour["min"], colour["max"], colour["remap"]) == (50, 400, True)
    page.keyboard.press("Escape")
    page.get_by_label("Colour by").select_option("user")
    overview.wait_until(
        lambda: page.locator("[data-testid=legend-words] li").count() > 3, "a list of users"
    )


def test_the_legend_is_a_brush_that_filters(overview: Overview) -> None:
    page = overview.open("?view=physical").page
    overview.wait_until(
        lambda: page.locator("[data-testid=legend-histogram] g").count() > 10, "a histogram"
    )
    box = page.get_by_test_id("legend-histogram").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20, steps=4)
    page.mouse.up()
    overview.wait_until(lambda: 0 < overview.units() < GPUS, "fewer units")
    (condition,) = overview.view()["filter"]
    assert condition["field"] == "util"
    assert 45 <= condition["value"][0] <= 55
    page.get_by_role("button", name="Clear selection").click()
    overview.wait_until(lambda: overview.units() == GPUS, "all units again")


def test_dark_and_light_theme(overview: Overview) -> None:
    page = overview.open("?view=physical").page
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="Switch to light theme").click()
    light = page.evaluate(ground)
    assert dark != light
    page.reload()
    overview.wait_drawn()
    assert page.evaluate(ground) == light
