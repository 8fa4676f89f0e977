"""Waits by size and type, and what a policy change is compared over."""

from __future__ import annotations

from typing import Any

from marey.app.collect.clocks import StoredClock
from marey.app.people.capacity import AskCapacity, measure_waits, name_size
from marey.app.queries.workspace import Workspace
from marey.live.summary import SummaryLog
from marey.model.inventory import Gpu, Host
from marey.model.observation import Observation
from marey.store.embedded.embedded_store import open_store


def job(gpus: int, submit_s: int, start_s: int | None, end_s: int | None = None) -> dict[str, Any]:
    times = {"submit_ms": submit_s, "start_ms": start_s, "end_ms": end_s}
    return {
        **{name: None if at is None else at * 1000 for name, at in times.items()},
        "gpus_requested": gpus,
        "resource_type": f"A100-{min(gpus, 8)}",
    }


def test_jobs_that_still_wait_count_with_the_time_they_have_waited() -> None:
    jobs = [job(1, 0, 10), job(1, 0, None), job(2, 0, 90), job(16, 50, 60, 70)]
    one, few, many = measure_waits(jobs, "size", 0, 100_000)
    assert (one.kind, one.started, one.waiting) == ("1", 1, 1)
    assert (one.median_wait_s, one.longest_waiting_s) == (55, 100)
    assert (few.median_wait_s, few.longest_waiting_s) == (90, None)
    assert (many.kind, many.median_wait_s) == ("9-64", 10)


def test_what_started_later_waited_then_and_what_was_cancelled_did_not() -> None:
    jobs = [job(1, 0, 200), job(1, 0, None, 40), job(1, 150, 160)]
    (one,) = measure_waits(jobs, "resource_type", 0, 100_000)
    assert (one.kind, one.started, one.waiting, one.median_wait_s) == ("A100-1", 0, 1, 100)


def test_sizes_have_bounds() -> None:
    assert [name_size(gpus) for gpus in (1, 2, 8, 9, 64, 65)] == [
        "1", "2-8", "2-8", "9-64", "9-64", "65+"
    ]  # fmt: skip


def test_a_new_site_has_a_page_too() -> None:
    with open_store(None) as store:
        store.ingest(
            [Observation(60_000, hosts=(Host("n1"),), gpus=(Gpu("n1", 0),), complete=True)]
        )
        workspace = Workspace(store, StoredClock(store, store.clusters), {}, SummaryLog(store))
        page = AskCapacity().ask(workspace)
    assert page.waits == []
    assert [step.gpus for step in page.steps] == [1]
