"""Journeys 1 and 2: units in nested groups, and the waiting pool."""

from __future__ import annotations

from tests.browser.conftest import GPUS, Demo, Overview


def test_every_gpu_and_every_waiting_request_has_a_square(overview: Overview, demo: Demo) -> None:
    overview.open()
    overview.hold()
    waiting = overview.number("waitingGpus")
    assert overview.number("gpus") == GPUS
    # The worker may still be arranging the last tick before the hold.
    overview.wait_until(lambda: overview.units() == GPUS + waiting, "a square for each")
    pools = {group["name"]: group["count"] for group in overview.groups(1)}
    assert pools["GPUs"] == GPUS
    assert pools.get("Waiting", 0) == waiting


def test_groups_nest_over_any_attributes_and_hold_each_other(overview: Overview) -> None:
    overview.open("?view=physical")
    overview.hold()
    assert overview.layers() == ["rack", "host"]
    racks, hosts = overview.groups(1), overview.groups(2)
    assert sum(rack["count"] for rack in racks) == GPUS
    assert sum(host["count"] for host in hosts) == GPUS
    for host in hosts:
        inside = [
            rack
            for rack in racks
            if rack["x"] - 1e-3 <= host["x"]
            and host["x"] + host["w"] <= rack["x"] + rack["w"] + 1e-3
            and rack["y"] - 1e-3 <= host["y"]
            and host["y"] + host["h"] <= rack["y"] + rack["h"] + 1e-3
        ]
        assert len(inside) == 1


def test_layout_size_and_sort_of_a_layer_are_set_in_its_pop_up(overview: Overview) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    page.get_by_role("button", name="Settings of Host").click()
    page.get_by_role("button", name="Fill Y").click()
    page.get_by_role("button", name="Uniform").click()
    page.get_by_label("Sort by").select_option("count")
    page.get_by_role("button", name="Descending").click()
    page.get_by_label("Label").fill("18")
    layer = overview.view()["layers"][1]
    assert (layer["layout"], layer["size"], layer["label"]) == ("fill_y", "uniform", 18)
    assert layer["sort"] == {"by": "count", "order": "descending"}
    page.keyboard.press("Escape")
    overview.wait_until(
        lambda: len({round(host["w"], 2) for host in overview.groups(2)}) == 1, "hosts of one width"
    )


def test_a_number_is_grouped_in_bins(overview: Overview) -> None:
    page = overview.open("?view=physical").page
    overview.hold()
    page.get_by_label("Layer 1 groups by").select_option("util")
    overview.wait_until(
        lambda: any("%" in group["name"] for group in overview.groups(1)), "bins of a number"
    )
    assert sum(group["count"] for group in overview.groups(1)) == GPUS


def test_free_drained_and_failed_gpus_are_shown_as_such(overview: Overview, demo: Demo) -> None:
    overview.open("?view=health")
    overview.hold()
    states = {group["name"]: group["count"] for group in overview.groups(1)}
    assert states.get("idle", 0) == overview.number("idle")
    broken = sum(states.get(word, 0) for word in ("drained", "down", "failed", "unknown"))
    assert broken == overview.number("broken")
    legend = overview.page.inner_text("section[aria-label=Colour]")
    for word in states:
        assert word in legend


def test_the_waiting_pool_groups_by_what_is_asked_for_in_the_schedulers_order(
    overview: Overview, demo: Demo
) -> None:
    page = overview.open("?view=waiting").page
    overview.hold()
    assert overview.view()["colour"]["by"] == "waiting_s"
    # What changed just before the hold is arranged a moment after the numbers say so.
    overview.wait_until(
        lambda: overview.units() == overview.number("waitingWorkloads"), "every waiting workload"
    )
    assert sum(group["count"] for group in overview.groups(1)) == overview.units()
    page.get_by_role("button", name="Requested GPU").click()
    overview.wait_until(
        lambda: overview.units() == overview.number("waitingGpus"), "one square per requested GPU"
    )
    page.get_by_label("Layer 1 groups by").select_option("reason")
    overview.wait_until(
        lambda: overview.page.evaluate("window.marey.arranged()"), "groups of reasons"
    )
    assert sum(group["count"] for group in overview.groups(1)) == overview.units()


def test_the_papers_views_and_the_others_are_presets(overview: Overview) -> None:
    overview.open()
    overview.hold()
    expected = {
        "projects": ["partition", "project"],
        "waiting": ["resource_type"],
        "fragmentation": ["partition", "host"],
        "physical": ["rack", "host"],
        "workloads": ["project", "user", "workload"],
        "idle": ["user", "workload"],
        "health": ["state", "host"],
        "mine": ["pool", "project", "workload"],
    }
    for name, layers in expected.items():
        overview.preset(name)
        assert overview.layers() == layers, name
        assert f"view={name}" in overview.wait_until(
            lambda name=name: overview.page.url if f"view={name}" in overview.page.url else "",
            f"the address of {name}",
        )


def test_my_work_follows_the_name_chosen_in_the_browser(overview: Overview, demo: Demo) -> None:
    page = overview.open("?view=mine").page
    assert "Your user name" in page.inner_text("[data-testid=empty-state]")
    running = demo.get("/workloads?state=running&limit=5")["rows"]
    user = running[0]["user"]
    page.click("[data-testid=view-button]")
    page.get_by_label("My user name").fill(user)
    overview.wait_until(lambda: overview.units() > 0, "my units")
    page.keyboard.press("Escape")
    overview.hold()
    assert overview.view()["filter"] == [{"field": "user", "op": "eq", "value": user}]
    overview.wait_until(lambda: "me=" in page.url, "my name in the address")
