"""The paper's case 7.1: from a growing queue, over split hosts, to another placement policy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.conftest import Demo, Overview, open_window, start_demo

# Simulated seconds per second: an hour of scheduling passes in a few seconds.
SPEED = "1000"
PATIENCE_S = 150


@pytest.fixture
def fragmenting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A busy cluster whose scheduler spreads small workloads over all hosts."""
    folder = tmp_path_factory.mktemp("case")
    arguments = ("--gpus", "512", "--hours", "6", "--seed", "1", "--speed", SPEED, "--port", "0")
    demo = start_demo(*arguments, folder=folder)
    demo.put("/simulation", {"placement": "least_allocated"})
    yield demo
    demo.stop()


def longest_column(overview: Overview) -> tuple[str, int]:
    """The resource type that most wait for in view B2, and how many do."""
    columns = {group["name"]: int(group["count"]) for group in overview.groups(1)}
    return max(columns.items(), key=lambda item: item[1], default=("", 0))


def who_waits(overview: Overview) -> set[str]:
    """The workloads of that column."""
    rows = overview.page.evaluate('window.marey.rows(["workload", "resource_type"])')
    return {workload for workload, kind in rows if kind == "A100-8"}


def split_hosts(overview: Overview) -> int:
    """Hosts of the partition for small work, in view B3, that are partly free and partly taken."""
    rows = overview.page.evaluate('window.marey.rows(["partition", "host", "state"])')
    states: dict[str, set[str]] = defaultdict(set)
    for partition, host, state in rows:
        if partition == "a100-small":
            states[host].add(state)
    return sum({"idle", "allocated"} <= seen for seen in states.values())


@pytest.fixture
def window(browser: Any, fragmenting: Demo) -> Iterator[Overview]:
    """The overview of that cluster."""
    yield from open_window(browser, fragmenting, reduced_motion="reduce")


def test_switching_placement_frees_hosts_and_moves_the_queue(
    window: Overview, fragmenting: Demo
) -> None:
    overview = window
    page = overview.open("?view=waiting").page

    def long_column_of_a100_8() -> bool:
        kind, waiting = longest_column(overview)
        return kind == "A100-8" and waiting >= 14

    overview.wait_until(long_column_of_a100_8, "a long column of A100-8", PATIENCE_S)

    overview.preset("fragmentation")
    spread = overview.wait_until(
        lambda: split_hosts(overview) >= 7 and split_hosts(overview),
        "small workloads on many hosts",
        PATIENCE_S,
    )
    overview.preset("waiting")
    before = overview.wait_until(
        lambda: len(who_waits(overview)) >= 12 and who_waits(overview), "the column", PATIENCE_S
    )

    page.get_by_test_id("policy").click()
    page.get_by_label("Placement").select_option("most_allocated")
    overview.wait_until(
        lambda: fragmenting.get("/simulation")["placement"] == "most_allocated", "the switch"
    )
    page.keyboard.press("Escape")

    overview.preset("fragmentation")
    overview.wait_until(
        lambda: split_hosts(overview) <= spread * 0.5, "hosts to be whole again", PATIENCE_S
    )
    overview.preset("waiting")
    # Others come at any hour of the day: what counts is that those who waited get their hosts.
    overview.wait_until(
        lambda: len(before & who_waits(overview)) <= 0.3 * len(before),
        "the queue to move",
        PATIENCE_S,
    )
