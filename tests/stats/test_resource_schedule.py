"""Queues, shared links, and equality with the longest path where nothing is contended."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marey.model.errors import InvalidInput
from marey.stats.resource_schedule import Costs, Schedule, build_task_graph, schedule_tasks
from marey.stats.topological import build_dag, finish_times


def _schedule(
    work: list[float],
    *,
    edges: list[tuple[int, int]] = [],  # noqa: B006
    resource: list[int] | None = None,
    links: list[list[int]] | None = None,
    size: list[float] | None = None,
    places: list[int] = [],  # noqa: B006
    bandwidth: list[float] = [],  # noqa: B006
    credit: list[float] | None = None,
) -> Schedule:
    count = len(work)
    own = links or [[] for _ in range(count)]
    graph = build_task_graph(
        np.array([a for a, _ in edges], np.int64),
        targets=np.array([b for _, b in edges], np.int64),
        resource=np.array(resource if resource is not None else [-1] * count, np.int64),
        link_first=np.cumsum([0, *(len(o) for o in own)]).astype(np.int64),
        links=np.array([link for o in own for link in o], np.int64),
    )
    costs = Costs(
        np.array(work),
        np.array(size if size is not None else [0.0] * count),
        np.array(places, np.int64),
        np.array(bandwidth),
        np.array(credit) if credit is not None else None,
    )
    return schedule_tasks(graph, costs)


def test_two_transfers_share_a_link_equally() -> None:
    # The second starts at 5, when half of the first is done.
    found = _schedule(
        [0.0, 0.0, 5.0],
        edges=[(2, 1)],
        links=[[0], [0], []],
        size=[100.0, 100.0, 0.0],
        bandwidth=[10.0],
    )
    assert found.finish.tolist() == [15.0, 20.0, 5.0]


def test_a_transfer_goes_at_the_speed_of_its_slowest_link() -> None:
    found = _schedule([0.0], links=[[0, 1]], size=[100.0], bandwidth=[10.0, 4.0])
    assert found.finish[0] == 25.0


def test_a_link_lets_its_credit_through_at_once_and_saves_it_up_again_while_idle() -> None:
    # The second comes when 30 of 60 bytes are saved up again, the third after a long pause.
    found = _schedule(
        [0.0, 0.0, 0.0, 7.0, 100.0],
        edges=[(3, 1), (4, 2)],
        links=[[0], [0], [0], [], []],
        size=[100.0, 100.0, 100.0, 0.0, 0.0],
        bandwidth=[10.0],
        credit=[60.0],
    )
    assert found.finish[:3].tolist() == [4.0, 14.0, 104.0]


def test_spare_capacity_of_a_busy_link_is_saved_up_too() -> None:
    # Over the slow link 4 a unit flow, so the other saves up 6 of its 10.
    found = _schedule(
        [0.0, 0.0, 5.0],
        edges=[(2, 1)],
        links=[[0, 1], [0], []],
        size=[100.0, 130.0, 0.0],
        bandwidth=[10.0, 4.0],
        credit=[60.0, 0.0],
    )
    # 60 were never spent: they pass at once, and 5 a unit of the rest while both share the link.
    assert found.finish.tolist() == [25.0, 19.0, 5.0]


def test_a_resource_serves_first_come_first_served() -> None:
    found = _schedule(
        [0.0, 1.0, 10.0, 10.0], edges=[(1, 2), (0, 3)], resource=[-1, -1, 0, 0], places=[1]
    )
    assert found.start.tolist()[2:] == [10.0, 0.0]
    assert found.released_by[2] == 3


def test_two_places_serve_two_at_once() -> None:
    found = _schedule([10.0, 10.0, 10.0], resource=[0, 0, 0], places=[2])
    assert sorted(found.finish.tolist()) == [10.0, 10.0, 20.0]


def test_latency_comes_before_the_bytes_move() -> None:
    found = _schedule([3.0, 0.0], links=[[0], [0]], size=[10.0, 10.0], bandwidth=[10.0])
    assert found.finish.tolist() == [4.0, 1.0]


def test_tasks_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(InvalidInput, match="2 of 2 tasks wait"):
        _schedule([1.0, 1.0], edges=[(0, 1), (1, 0)])


@given(
    st.lists(st.floats(0.0, 100.0), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=80),
)
def test_without_contention_it_is_the_longest_path(
    work: list[float], pairs: list[tuple[int, int]]
) -> None:
    edges = sorted({(a, b) for a, b in pairs if a < b < len(work)})
    found = _schedule(work, edges=edges)
    sources = np.array([a for a, _ in edges], np.int64)
    targets = np.array([b for _, b in edges], np.int64)
    dag = build_dag(len(work), sources, targets)
    assert np.allclose(found.finish, finish_times(dag, np.array(work)))


@given(st.lists(st.floats(1.0, 100.0), min_size=1, max_size=12), st.integers(1, 4))
def test_a_shared_link_is_never_idle_while_bytes_wait(sizes: list[float], places: int) -> None:
    count = len(sizes)
    found = _schedule(
        [0.0] * count,
        resource=[0] * count,
        links=[[0]] * count,
        size=sizes,
        places=[places],
        bandwidth=[2.0],
    )
    assert np.isclose(found.finish.max(), sum(sizes) / 2.0)
