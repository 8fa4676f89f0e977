"""Traces in a real browser: the seed's two cases, from the list of runs to the one operator."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from marey.cli import main
from marey.trace.synthetic import make_run
from marey.trace.synthetic.kineto import write_kineto
from tests.browser.conftest import Demo, Overview
from tests.browser.sent_runs import SCENARIOS, find_run, send_scenario
from tests.waiting import PATIENCE_S

AXE = Path(__file__).resolve().parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
# A row of each rank and a header of each stage, as charts/marey/rows.ts places them.
HEADER_PX, TALLEST_PX = 18, 40


@pytest.fixture(scope="module")
def slow_device(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int]:
    """The language model with one slow device: the run, and the device's rank."""
    run, made = send_scenario(demo, "slow device", tmp_path_factory.mktemp("slow"))
    return run, made.truth.ranks[0]


@pytest.fixture(scope="module")
def placed(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same model with its gradients reduced beside backward, and all at the end."""
    names = ("all-reduce beside backward", "all-reduce at the end")
    well, badly = (send_scenario(demo, n, tmp_path_factory.mktemp("placed"))[0] for n in names)
    return well, badly


def open_view(window: Overview, view: str, run: str, **query: Any) -> Any:
    address = urllib.parse.urlencode({"id": run, **query})
    window.page.goto(f"{window.url}/traces/{view}?{address}")
    return window.page


def wait_picture(window: Overview) -> None:
    """Wait until the Marey view has drawn what it asked for."""
    window.page.wait_for_selector("[data-testid=marey][data-loaded=true]")


def address_of(page: Any) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(page.url).query))


def read_rows(page: Any, stages: int, per_stage: int) -> list[dict[str, float]]:
    """Return, rank by rank, which share of its row is of which colour of the legend."""
    return page.evaluate(
        """([stages, perStage, header, tallest]) => {
          const swatches = [...document.querySelectorAll("[data-kind]")].map((one) => [
            one.dataset.kind,
            getComputedStyle(one.querySelector("i")).backgroundColor.match(/\\d+/g).map(Number),
          ]);
          const canvas = document.querySelector("[data-testid=marey] canvas");
          const context = canvas.getContext("2d");
          const headers = stages > 1 ? stages : 0;
          const rows = stages * perStage;
          const tall = Math.min(tallest, (canvas.height - headers * header) / rows);
          const shares = [];
          for (let row = 0; row < rows; row++) {
            const above = headers ? Math.floor(row / perStage) + 1 : 0;
            const y = Math.round(above * header + row * tall + 4);
            const { data } = context.getImageData(0, y, canvas.width, 1);
            const count = {};
            for (let x = 0; x < canvas.width; x++) {
              const far = ([, colour]) =>
                colour.reduce((sum, c, i) => sum + Math.abs(c - data[x * 4 + i]), 0);
              const nearest = swatches.reduce((a, b) => (far(b) < far(a) ? b : a));
              const [kind] = nearest;
              if (far(nearest) < 60) count[kind] = (count[kind] ?? 0) + 1 / canvas.width;
            }
            shares.push(count);
          }
          return shares;
        }""",
        [stages, per_stage, HEADER_PX, TALLEST_PX],
    )


def test_a_slow_device_is_named_and_stands_out_as_one_row(
    overview: Overview, slow_device: tuple[str, int]
) -> None:
    run, slow = slow_device
    page = overview.page
    page.goto(f"{overview.url}/traces")
    line = page.locator(f"[data-run='{run}']")
    line.get_by_text("Slow worker").wait_for()
    line.get_by_role("link", name="slow device").click()
    verdict = page.locator("[data-testid=verdicts] li").first
    verdict.wait_for()
    assert f"rank {slow}" in verdict.inner_text()
    verdict.get_by_role("link", name="Show in the Marey view").click()
    wait_picture(overview)
    assert f"rank={slow}" in address_of(page)["where"]
    assert f"rank {slow}" in page.inner_text("[data-testid=marey-said]")
    # It computes longer than the other replica, whose ranks wait in the all-reduce meanwhile.
    rows = read_rows(page, 4, 4)
    peer = slow ^ 2
    assert rows[slow]["compute"] > 1.15 * rows[peer]["compute"]
    assert rows[peer]["collective"] > rows[slow].get("collective", 0) + 0.05


def test_the_marey_view_is_walked_by_keyboard_and_saved(
    overview: Overview, slow_device: tuple[str, int], tmp_path: Path
) -> None:
    run, slow = slow_device
    page = open_view(overview, "marey", run, step=1)
    wait_picture(overview)
    view = page.get_by_test_id("marey")
    view.focus()
    view.press("o")
    overview.wait_until(
        lambda: f"rank {slow}" in page.inner_text("[data-testid=marey-said]"), "the outlier"
    )
    rows = int(view.get_attribute("data-rows") or 0)
    for more in (True, False):
        view.press("Enter")
        overview.wait_until(
            lambda more=more: (int(view.get_attribute("data-rows") or 0) > rows) == more,
            "the rank's streams",
        )
        wait_picture(overview)

    overview.wait_until(lambda: choose_operator(page, view), "an operator")
    first = address_of(page)["where"]
    assert f"rank={slow}" in first
    view.press("n")
    overview.wait_until(
        lambda: f"rank={slow + 1}" in address_of(page).get("where", ""), "the next rank"
    )
    operator = next(part for part in first.split(" and ") if part.startswith("operator="))
    assert operator in address_of(page)["where"].split(" and ")
    view.press("+")
    overview.wait_until(lambda: "from" in address_of(page), "the window in the address")
    zoomed = address_of(page)["from"]
    view.press("ArrowRight")
    overview.wait_until(lambda: address_of(page).get("from") != zoomed, "the window moved on")
    view.press("b")
    overview.wait_until(lambda: "from" not in address_of(page), "the whole step again")
    view.press("+")
    overview.wait_until(lambda: "from" in address_of(page), "the window in the address again")
    link = page.url
    page.get_by_label("Table", exact=True).check()
    table = page.get_by_role("table", name="Operators in the window")
    table.wait_for()
    assert table.locator("tbody tr").count() > 10
    for kind, head in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=kind, exact=True).click()
        waiting.value.save_as(tmp_path / kind)
        assert head in (tmp_path / kind).read_bytes()[:200]
    # The same link shows the same, and the same selection in the execution flow.
    page.goto(link)
    wait_picture(overview)
    page.wait_for_selector("[data-testid=marey-selected]")
    page.get_by_role("link", name="Execution flow").click()
    page.wait_for_selector("[data-testid=flow-attributes]")


def test_a_micro_batch_is_followed_through_all_stages(
    overview: Overview, slow_device: tuple[str, int]
) -> None:
    run, _ = slow_device
    page = open_view(overview, "marey", run, step=1, grouped=0)
    wait_picture(overview)
    before = [sum(row.values()) for row in read_rows(page, 4, 4)]
    choice = page.get_by_label("Micro-batch", exact=True)
    choice.select_option("1")
    overview.wait_until(
        lambda: address_of(page).get("where") == "micro_batch=1", "the micro-batch in the address"
    )
    page.goto(page.url)
    wait_picture(overview)
    assert choice.input_value() == "1"
    # It stands out on the rows of every stage; the rest is pale.
    after = [sum(row.values()) for row in read_rows(page, 4, 4)]
    assert all(0.02 < now < 0.8 * full for now, full in zip(after, before, strict=True))
    page.get_by_role("button", name="Clear").click()
    overview.wait_until(lambda: choice.input_value() == "-1", "nothing followed")


def test_a_badly_placed_all_reduce_is_wide_on_all_devices(
    overview: Overview, demo: Demo, placed: tuple[str, str], slow_device: tuple[str, int]
) -> None:
    well, badly = placed
    shares = {}
    for run in (well, badly, slow_device[0]):
        page = open_view(overview, "marey", run, step=1, grouped=0)
        wait_picture(overview)
        shares[run] = [row.get("collective", 0) for row in read_rows(page, 4, 4)]
    # Wide on every device alike; beside backward it hides, and a slow device lets its peers wait.
    assert min(shares[badly]) > 2 * max(shares[well])
    assert max(shares[badly]) < 1.5 * min(shares[badly])
    usual = shares[slow_device[0]]
    assert max(usual) > 2 * min(usual)
    # The difference of the two runs says what it costs: what was hidden is exposed, nothing else.
    difference = demo.send("GET", f"/traces/{well}/difference?with={badly}")
    more = {part["name"]: part["delta_ms"] for part in difference["parts"]}
    assert more["exposed_comm"] == pytest.approx(-more["hidden_comm"], rel=0.1)
    assert more["span"] == pytest.approx(more["exposed_comm"], rel=0.1)
    assert abs(more["compute"]) < 0.02 * more["span"]


def test_several_steps_share_one_axis(overview: Overview, slow_device: tuple[str, int]) -> None:
    run, slow = slow_device
    page = open_view(overview, "marey", run, step=0, grouped=0)
    wait_picture(overview)
    one = read_rows(page, 4, 4)
    page.get_by_label("through", exact=True).select_option("1")
    overview.wait_until(lambda: address_of(page).get("through") == "1", "the step in the address")
    page.wait_for_selector("[data-testid=marey][aria-label*='step 0, 1']")
    wait_picture(overview)
    both = read_rows(page, 4, 4)
    # The slow device is slow in both steps, at half the width each.
    peer = slow ^ 2
    for rows in (one, both):
        assert rows[slow]["compute"] > 1.15 * rows[peer]["compute"]
    view = page.get_by_test_id("marey")
    page.get_by_label("Table", exact=True).check()
    table = page.get_by_role("table", name="Operators in the window")
    table.get_by_role("button", name="Step").wait_for()
    # A selected operator is one of one step, also for whoever opens the link.
    view.focus()
    view.press("o")
    overview.wait_until(lambda: choose_operator(page, view), "an operator")
    where = address_of(page)["where"].split(" and ")
    assert any(part.startswith("step=") for part in where)
    page.goto(page.url)
    page.wait_for_selector("[data-testid=marey-selected]")


def choose_operator(page: Any, view: Any) -> bool:
    """Press until the operators of the row are there to choose from."""
    chosen = page.locator("[data-testid=marey-selected]").count() > 0
    if not chosen:
        view.press(".")
    return bool(chosen)


def test_the_command_line_reaches_the_same_runs(
    demo: Demo, slow_device: tuple[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    run, slow = slow_device
    store = ["--store", str(demo.store)]
    assert main(["trace", "runs", *store, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["runs"]
    assert {one["id"] for one in listed} == {one["id"] for one in demo.get("/traces")["runs"]}
    where = f"rank={slow} and step=1"
    table = ["trace", "table", run, "breakdown", *store, "--where", where]
    assert main([*table, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    query = urllib.parse.urlencode({"where": where, "limit": 20})
    assert found == demo.get(f"/traces/{run}/breakdown?{query}")
    assert [row["rank"] for row in found["rows"]] == [slow]
    assert main(table) == 0
    assert "compute_ms" in capsys.readouterr().out
    assert main(["trace", "table", run, "verdicts", *store]) == 0
    assert f"rank {slow}" in capsys.readouterr().out
    assert main(["trace", "table", "../me", "steps", *store]) != 0
    assert "marey trace report" not in capsys.readouterr().err


def test_call_graphs_are_beside_the_other_views_of_a_run(
    overview: Overview, slow_device: tuple[str, int]
) -> None:
    page = open_view(overview, "run", slow_device[0])
    page.get_by_label("Views of this run").get_by_role("link", name="Call graphs").click()
    page.wait_for_selector("[data-testid=sankey][data-draw-ms]")
    assert address_of(page)["source"] == f"run:{slow_device[0]}"
    page.get_by_test_id("suspects").get_by_text("call sites in").wait_for()


def test_the_flow_shows_stages_strategies_and_stacks(
    overview: Overview, slow_device: tuple[str, int]
) -> None:
    page = open_view(overview, "flow", slow_device[0], step=1)
    flow = page.get_by_test_id("flow")
    flow.wait_for()
    closed = int(flow.get_attribute("data-nodes") or 0)
    page.get_by_role("textbox", name="Search").fill("GPT")
    page.get_by_role("button", name="Next match").click()
    attributes = page.get_by_test_id("flow-attributes")
    attributes.wait_for()
    assert "×10" in attributes.inner_text() or "10" in attributes.inner_text()
    flow.focus()
    flow.press("Enter")
    overview.wait_until(
        lambda: int(flow.get_attribute("data-nodes") or 0) > closed, "the open namespace"
    )


def test_a_link_shows_the_flow_as_it_was_and_files_keep_it(
    overview: Overview, slow_device: tuple[str, int], tmp_path: Path
) -> None:
    run, slow = slow_device
    page = open_view(overview, "run", run)
    page.get_by_role("link", name="Show in the execution flow").first.click()
    flow = page.get_by_test_id("flow")
    attributes = page.get_by_test_id("flow-attributes")
    attributes.wait_for()
    # The verdict's kernels run in every stage: the node is one of the slow rank's own, and says so.
    said = attributes.inner_text()
    assert re.search(r"Stage\s+3\b", said), said
    assert re.search(rf"Slowest rank\s+{slow}\b", said), said
    flow.focus()
    closed = int(flow.get_attribute("data-nodes") or 0)
    flow.press("Enter")
    page.get_by_label("Colour", exact=True).select_option("blame")
    overview.wait_until(
        lambda: {"open", "colour"} <= set(address_of(page)), "what is open in the address"
    )
    overview.wait_until(lambda: int(flow.get_attribute("data-nodes") or 0) > closed, "more nodes")
    opened = flow.get_attribute("data-nodes")
    page.goto(page.url)
    page.wait_for_selector(f"[data-testid=flow][data-nodes='{opened}']")
    assert page.get_by_label("Colour", exact=True).input_value() == "blame"
    page.get_by_test_id("flow-legend").get_by_text("inferred").wait_for()
    for kind, head in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=kind, exact=True).click()
        waiting.value.save_as(tmp_path / kind)
        assert head in (tmp_path / kind).read_bytes()[:200]


def test_a_link_to_an_operator_too_short_to_be_seen_goes_to_it(
    overview: Overview, slow_device: tuple[str, int]
) -> None:
    run, slow = slow_device
    page = open_view(overview, "marey", run, step=1)
    wait_picture(overview)
    view = page.get_by_test_id("marey")
    view.focus()
    view.press("o")
    for _ in range(9):
        view.press("+")
    overview.wait_until(lambda: "from" in address_of(page), "the window in the address")
    begin, end = seen_window(overview, page)
    overview.wait_until(lambda: choose_operator(page, view), "an operator")
    # The first that is seen, though more are loaded than are seen.
    overview.wait_until(lambda: "operator=" in address_of(page).get("where", ""), "its number")
    assert (begin, end) == seen_window(overview, page)
    # An exchange of tensor parallelism takes less than a pixel of the step.
    overview.wait_until(lambda: choose_exchange(page, view), "an exchange")
    name = page.inner_text("[data-testid=marey-selected]")
    overview.wait_until(lambda: "AllReduce" in address_of(page)["where"], "it in the address")
    where = address_of(page)["where"]
    assert f"rank={slow}" in where
    # Without the window in the address it would be a cell among thousands.
    page = open_view(overview, "marey", run, step=1, where=where)
    page.wait_for_selector("[data-testid=marey-selected]")
    assert page.inner_text("[data-testid=marey-selected]") == name
    begin, end = seen_window(overview, page)
    assert end - begin < 20_000_000


def choose_exchange(page: Any, view: Any) -> bool:
    """Press until an all-reduce is chosen."""
    chosen = "AllReduce" in page.inner_text("[data-testid=marey-selected]")
    if not chosen:
        view.press(".")
    return chosen


def seen_window(window: Overview, page: Any) -> tuple[int, int]:
    """Return the window of the address once it rests."""
    seen: list[dict[str, str]] = []

    def rests() -> bool:
        seen.append(address_of(page))
        return "from" in seen[-1] and seen[-1:] == seen[-2:-1]

    window.wait_until(rests, "a window that rests")
    return int(seen[-1]["from"]), int(seen[-1]["to"])


# Every tab of a run with the tables in it.
TABLES = {
    "steps": ("Step durations",),
    "breakdown": ("Breakdown",),
    "collectives": ("Collectives",),
    "waits": ("Who made whom wait",),
    "communication": ("Communication of ranks", "Pairs of ranks"),
    "memory": ("Memory",),
    "kernels": ("kernels",),
    "operators": ("operators",),
    "path": ("Critical path",),
    "difference": ("Parts", "Changes"),
}


@pytest.mark.parametrize("tab", TABLES)
def test_every_table_of_a_run_is_sorted_filtered_and_saved(
    overview: Overview, slow_device: tuple[str, int], tab: str
) -> None:
    page = open_view(overview, "run", slow_device[0], tab=tab)
    if tab == "difference":
        page.get_by_role("button", name="Compare", exact=True).click()
    panel = page.get_by_test_id(f"panel-{tab}")
    for name in TABLES[tab]:
        table = panel.get_by_role("table", name=name, exact=True)
        table.locator("tbody tr").first.wait_for()
        check_table(page, panel, table, name)
    assert panel.get_by_role("table").count() == len(TABLES[tab])


# Chromium drops what a page downloads beyond ten files within a second: all but one are read as
# the page makes them.
KEEP_FILES = """() => {
  window.made = { create: URL.createObjectURL, click: HTMLAnchorElement.prototype.click };
  URL.createObjectURL = (blob) => ((window.made.text = blob.text()), "blob:kept");
  HTMLAnchorElement.prototype.click = () => {};
}"""
HAND_OUT_FILES = """() => {
  URL.createObjectURL = window.made.create;
  HTMLAnchorElement.prototype.click = window.made.click;
}"""


def check_table(page: Any, panel: Any, table: Any, name: str) -> None:
    """Sort by every column in both directions, filter to the first row, save what is left."""
    block = panel.locator(f"[data-table='{name}']")
    downloaded = download_rows(page, block, name)
    page.evaluate(KEEP_FILES)
    assert read_saved_rows(page, block) == downloaded
    for head in range(table.get_by_role("columnheader").get_by_role("button").count()):
        button = table.get_by_role("columnheader").nth(head).get_by_role("button")
        whole = {}
        for _ in range(2):
            button.click()
            order = table.get_by_role("columnheader").nth(head).get_attribute("aria-sort")
            whole[order] = read_saved_rows(page, block)
        assert set(whole) == {"ascending", "descending"}
        column = list(whole["ascending"][0])[head]
        up, down = ([row[column] for row in whole[order]] for order in ("ascending", "descending"))
        assert sorted(up) == sorted(down)
        assert_sorted([value for value in up if value != ""])
        assert_sorted([value for value in reversed(down) if value != ""])
    rows = whole["ascending"]
    wanted = max((value for value in rows[0].values()), key=len)
    block.get_by_role("textbox").fill(wanted)
    kept = [row for row in rows if any(wanted.lower() in v.lower() for v in row.values())]
    assert read_saved_rows(page, block) == kept
    assert 0 < table.locator("tbody tr").count() <= len(kept)
    block.get_by_role("textbox").fill("no row says this")
    assert table.locator("tbody tr").count() == 0
    page.evaluate(HAND_OUT_FILES)


def download_rows(page: Any, block: Any, name: str) -> list[dict[str, str]]:
    """Return the rows of a table as its downloaded CSV file has them."""
    with page.expect_download() as waiting:
        block.get_by_role("button", name="CSV").click()
    assert waiting.value.suggested_filename == f"{name.replace(' ', '-')}.csv"
    with open(waiting.value.path(), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_saved_rows(page: Any, block: Any) -> list[dict[str, str]]:
    """Return the rows of a table as the page makes its CSV file."""
    block.get_by_role("button", name="CSV").click()
    text = page.evaluate("window.made.text")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def assert_sorted(values: list[str]) -> None:
    """Numbers as numbers; texts only in so far as equal ones stand together."""
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        changes = sum(a != b for a, b in itertools.pairwise(values))
        assert changes <= len(set(values)) - 1
    else:
        assert numbers == sorted(numbers)


def test_files_are_dropped_converted_compared_and_deleted(
    overview: Overview, demo: Demo, tmp_path: Path
) -> None:
    made = make_run(SCENARIOS["ResNet-50"])
    files = [str(path) for path in write_kineto(made.run, tmp_path)]
    page = overview.page
    page.goto(f"{overview.url}/traces")
    page.get_by_test_id("trace-files").set_input_files(files)
    line = page.locator("[data-testid=trace-runs] tr[data-state=ready]", has_text="and 7 more")
    line.wait_for()
    assert "Slow worker" in line.inner_text()
    run = str(line.get_attribute("data-run"))
    line.get_by_role("link").first.click()
    for tab, sign in (
        ("Steps", "canvas"),
        ("Breakdown", "table"),
        ("Collectives", "table"),
        ("Who made whom wait", "canvas"),
        ("Memory", "svg"),
        ("Kernels", "table"),
        ("Operators", "table"),
        ("Critical path", "table"),
        ("Difference", "form"),
    ):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_selector(f"[role=tabpanel] {sign}")
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_selector("[data-testid=panel-difference] table tbody tr")
    page.get_by_role("tab", name="Communication").click()
    lasso(page, page.get_by_test_id("network"))
    page.get_by_text("8 ranks selected").first.wait_for()
    # Deleted while somebody looks at it: the page says so.
    assert find_run(demo, run)["state"] == "ready"
    overview.errors.permit(f"status of 404 .*/traces/{run}")
    demo.send("DELETE", f"/traces/{run}")
    page.reload()
    page.get_by_role("alert").get_by_text("may have been deleted").first.wait_for()


def lasso(page: Any, drawing: Any) -> None:
    """Draw a line around everything."""
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.05)]
    places = [(box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in corners]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=4)
    page.mouse.up()


def test_axe_finds_nothing_and_nothing_sticks_out_of_a_narrow_window(
    overview: Overview, slow_device: tuple[str, int]
) -> None:
    page = overview.page
    page.set_viewport_size({"width": 420, "height": 820})
    for view, sign in (("run", "verdicts"), ("marey", "marey"), ("flow", "flow")):
        open_view(overview, view, slow_device[0])
        page.wait_for_selector(f"[data-testid={sign}]")
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        violations = [
            (view, one["id"], [node["html"][:120] for node in one["nodes"]])
            for one in found["violations"]
        ]
        assert violations == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 420
    for tab in ("breakdown", "waits", "kernels"):
        open_view(overview, "run", slow_device[0], tab=tab)
        page.wait_for_selector(f"[data-testid=panel-{tab}] table tbody tr")
        assert page.evaluate("document.documentElement.scrollWidth") <= 420, tab


def test_the_demo_tells_the_story_from_the_wait_to_the_operator(
    overview: Overview, demo: Demo
) -> None:
    """A workload waited, was placed, became slow: which rank, and which operator."""
    run = next(run for run in demo.get("/traces")["runs"] if run["origin"] == "demo")
    about = demo.get(f"/workloads/{run['workload']}")
    assert about["start_ms"] > about["submit_ms"]
    page = overview.page
    page.goto(f"{overview.url}/workload?id={run['workload']}")
    page.get_by_text("Waited", exact=True).wait_for()
    page.get_by_text("confidence").first.wait_for()
    diagnosis = page.inner_text("body")
    page.get_by_role("main").get_by_role("link", name="Traces").click()
    # Whoever opens the run has it converted: nobody is asked to sign in for a demo.
    page.locator(f"[data-run='{run['id']}'] a").first.click()
    verdict = page.locator("[data-testid=verdicts] li").first
    verdict.wait_for(timeout=1000 * PATIENCE_S)
    (found,) = demo.get(f"/traces/{run['id']}/verdicts")["verdicts"][:1]
    assert found["ranks"]
    assert found["title"] in verdict.inner_text()
    # The rank of the trace is the GPU of the diagnosis. Of a large workload the hosts around the
    # slow GPU were traced; whole hosts of eight, so that a rank's GPU follows from its number.
    hosts = {row["rank"]: row["host"] for row in demo.get(f"/traces/{run['id']}")["ranks"]}
    assert all(f"{hosts[rank]}:{rank % 8}" in diagnosis for rank in found["ranks"])
    verdict.get_by_role("link", name="Show in the Marey view").click()
    wait_picture(overview)
    assert f"rank {found['ranks'][0]}" in page.inner_text("[data-testid=marey-said]")
    view = page.get_by_test_id("marey")
    view.focus()
    overview.wait_until(lambda: choose_operator(page, view), "an operator")
    assert f"rank={found['ranks'][0]}" in address_of(page)["where"]
