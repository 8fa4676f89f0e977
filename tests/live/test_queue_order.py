"""The queue kept in order: always as sorting it anew would be, and who moved is told exactly."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from marey.live.frames import LiveWorkload
from marey.live.queue_order import QueueOrder, queue_of, scheduler_order
from marey.model.workloads import Workload, WorkloadState, WorkloadStatus
from marey.queue.waiting.line import Waiter, sort_line

NAMES = [f"w{number}" for number in range(40)]
PRIORITIES = st.sampled_from([0.0, 1.0, 5.0, -3.0, math.inf, -math.inf, math.nan])
CHANGES = st.tuples(
    st.sampled_from(NAMES),
    st.one_of(st.none(), st.tuples(st.booleans(), PRIORITIES, st.integers(0, 3))),
)


def live(name: str, waits: bool, priority: float, submit_ms: int) -> LiveWorkload:
    state = WorkloadState.PENDING if waits else WorkloadState.RUNNING
    status = WorkloadStatus(name, state, "", priority)
    return LiveWorkload(Workload(name, submit_ms=submit_ms), status)


@given(st.lists(st.lists(CHANGES, max_size=60), max_size=6))
def test_after_any_changes_the_order_is_that_of_sorting_anew(
    ticks: list[list[tuple[str, tuple[bool, float, int] | None]]],
) -> None:
    order = QueueOrder()
    there: dict[str, LiveWorkload] = {}
    before: tuple[str, ...] = ()
    for changes in ticks:
        for name, told in changes:
            if told is None:
                there.pop(name, None)
                order.drop(name)
            else:
                there[name] = live(name, *told)
                order.put(there[name])
        names, moved = order.update_positions()
        waiting = [w for w in there.values() if w.status.state is WorkloadState.PENDING]
        assert names == tuple(w.workload.workload for w in sorted(waiting, key=scheduler_order))
        assert names == queue_of(there.values())
        was = {name: at for at, name in enumerate(before)}
        assert moved == tuple(n for at, n in enumerate(names) if was.get(n) != at)
        before = names


def test_few_changes_in_a_long_queue_and_none_at_all() -> None:
    order = QueueOrder()
    for number in range(1_000):
        order.put(live(f"{number:04}", True, 0.0, number))
    assert len(order.update_positions()[1]) == 1_000
    assert order.update_positions()[1] == ()
    order.put(live("0998", True, 0.0, 2_000))
    names, moved = order.update_positions()
    assert names[-2:] == moved == ("0999", "0998")
    order.drop("0000")
    names, moved = order.update_positions()
    assert len(names) == len(moved) == 999


def test_tied_array_tasks_stand_in_the_order_of_their_numbers_as_on_the_queue_page() -> None:
    names = ["41_10", "41_2", "41_1", "5"]
    order = queue_of([live(name, True, 1.0, 0) for name in names])
    assert order == ("5", "41_1", "41_2", "41_10")
    waiters = [
        Waiter(
            workload=name, user="", project="", partition="", gpus=1, per_host=1, model="",
            limit_s=None, submit_ms=0, priority=1.0, reason="",
        )
        for name in names
    ]  # fmt: skip
    assert tuple(waiter.workload for waiter in sort_line(waiters)) == order
