"""Pages of workloads: any order, any depth, within the memory of the store."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from marey.model.errors import TooLarge
from marey.model.observation import Observation
from marey.model.predicates import And, Comparison, Not
from marey.model.protocols import OrderFigures, WorkloadQuery
from marey.model.workloads import Workload, WorkloadState, WorkloadStatus
from marey.store.database.database_file import Database
from marey.store.embedded.embedded_store import EmbeddedStore, open_store

MANY = 300_000
LITTLE_MB = 48
NOW_MS = 1_000_000
STATES = tuple(WorkloadState)


MANY_READERS = 24


@pytest.fixture(scope="module")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of many jobs that are over, written straight into its tables."""
    path = tmp_path_factory.mktemp("large") / "jobs.duckdb"
    open_store(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO clusters VALUES ('default')")
        connection.execute(
            "INSERT INTO workloads_now BY NAME SELECT 'default' AS cluster, "
            "printf('%07d', i) AS workload, 'train-' || i * 31 % 1009 AS name, "
            "'user-' || i % 200 AS user, 1000 + i AS submit_ms, 2000 + i AS start_ms, "
            "2000 + i + i * 104729 % 172800 AS end_ms, '{}' AS attributes, 1 AS valid_from_ms "
            f"FROM range({MANY}) t(i)"
        )
        connection.execute(
            "INSERT INTO states_now BY NAME SELECT 'default' AS cluster, "
            "printf('%07d', i) AS workload, 'completed' AS state, '' AS reason, 0.0 AS priority, "
            f"1 AS valid_from_ms FROM range({MANY}) t(i)"
        )
    return path


def test_a_deep_page_fits_into_little_memory(large_store: Path) -> None:
    query = WorkloadQuery(order_by="run_ms", offset=MANY // 2, limit=10)
    lengths = sorted(((i * 104729 % 172800, i) for i in range(MANY)), reverse=True)
    with open_store(large_store, memory_limit_mb=LITTLE_MB) as store:
        page = store.workloads(query).column("workload").to_pylist()
        last = store.workloads(replace(query, offset=MANY - 10)).column("workload").to_pylist()
    assert page == [f"{i:07}" for _, i in lengths[MANY // 2 :][:10]]
    assert last == [f"{i:07}" for _, i in lengths[-10:]]


def test_many_readers_of_tables_wait_for_each_other_and_all_are_answered(
    large_store: Path,
) -> None:
    with (
        open_store(large_store) as store,
        ThreadPoolExecutor(MANY_READERS) as readers,
    ):
        orders = ["run_ms", "submit_ms", "name", "user"] * (MANY_READERS // 4)
        queries = [WorkloadQuery(order_by=order, offset=1000, limit=50) for order in orders]
        pages = list(readers.map(store.workloads, queries))
    assert [page.num_rows for page in pages] == [50] * MANY_READERS


def test_what_does_not_fit_into_the_memory_is_refused_with_advice(tmp_path: Path) -> None:
    database = Database(tmp_path / "jobs.duckdb", memory_limit_mb=LITTLE_MB)
    try:
        refused = pytest.raises(TooLarge, match=rf"more than the {LITTLE_MB} MB .*Ask for less")
        with refused, database.read() as connection:
            connection.execute("SELECT list(range) FROM range(40000000)").fetchall()
        with database.read() as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
    finally:
        database.close()


def make_jobs(rng: random.Random) -> Iterator[tuple[Workload, WorkloadStatus]]:
    """Yield jobs of every state, with and without the times they should have."""
    for number in range(120):
        submit, start, end = sorted(rng.sample(range(1, 1000), 3))
        job = Workload(
            f"w{number:03}",
            name=f"n{rng.randrange(9)}",
            user=f"u{rng.randrange(4)}",
            gpus_requested=rng.choice([1, 2, 8]),
            submit_ms=rng.choice([submit, submit, None]),
            start_ms=rng.choice([start, start, None]),
            end_ms=rng.choice([end, None]),
            attributes={"lr": str(rng.randrange(3))},
        )
        yield job, WorkloadStatus(job.workload, rng.choice(STATES), priority=rng.randrange(5))


@pytest.fixture(scope="module", params=["all have facts and a state", "some have only one"])
def mixed_store(request: pytest.FixtureRequest) -> Iterator[EmbeddedStore]:
    jobs = list(make_jobs(random.Random(7)))
    odd = request.param == "some have only one"
    with open_store(None) as store:
        store.apply(
            Observation(
                1500,
                workloads=tuple(job for i, (job, _) in enumerate(jobs) if not odd or i % 10 != 3),
                statuses=tuple(one for i, (_, one) in enumerate(jobs) if not odd or i % 10 != 6),
            )
        )
        yield store


def get_value(row: dict[str, Any], order_by: str) -> Any:
    """Return what a row is ordered by, computed from its facts."""
    running, pending = row["state"] == "running", row["state"] == "pending"
    if order_by == "wait_ms":
        begun = row["start_ms"] if row["start_ms"] is not None else NOW_MS if pending else None
        return None if begun is None or row["submit_ms"] is None else begun - row["submit_ms"]
    if order_by not in ("run_ms", "gpu_ms"):
        # A text that nobody has given is shown empty.
        return None if row[order_by] == "" else row[order_by]
    # One that is over and does not say when ended when that was observed.
    over = row["end_ms"] if row["end_ms"] is not None or pending else 1500
    until = NOW_MS if running else over
    if row["start_ms"] is None or until is None:
        return None
    times = row["gpus_requested"] if order_by == "gpu_ms" else 1
    return None if times is None else times * (until - row["start_ms"])


def get_begin(row: dict[str, Any]) -> tuple[int, str]:
    """Return when a workload came, which is the order among equals."""
    times = (row["submit_ms"], row["start_ms"], 0)
    return next(t for t in times if t is not None), row["workload"]


@pytest.mark.parametrize(
    "query",
    [
        WorkloadQuery(),
        WorkloadQuery(states=(WorkloadState.FAILED, WorkloadState.RUNNING)),
        WorkloadQuery(where=Comparison("user", "eq", "u1")),
        WorkloadQuery(where=And((Not(Comparison("state", "eq", "failed")),))),
        WorkloadQuery(where=Comparison("attributes.lr", "eq", "1")),
    ],
    ids=["all", "of states", "of a user", "not failed", "by attribute"],
)
@pytest.mark.parametrize(
    "order_by", ["submit_ms", "name", "state", "priority", "wait_ms", "run_ms", "gpu_ms"]
)
@pytest.mark.parametrize("descending", [True, False])
def test_pages_are_those_of_the_whole_list_in_order(
    mixed_store: EmbeddedStore, query: WorkloadQuery, order_by: str, descending: bool
) -> None:
    query = replace(query, order_by=order_by, descending=descending, to_ms=NOW_MS)
    # Without an order the rows are the same: they are put in order here.
    rows = mixed_store.workloads(replace(query, order_by="")).to_pylist()
    rows.sort(key=get_begin, reverse=True)
    known = [row for row in rows if get_value(row, order_by) is not None]
    known.sort(key=lambda row: get_value(row, order_by), reverse=descending)
    expected = known + [row for row in rows if get_value(row, order_by) is None]
    pages = [
        row
        for offset in range(0, len(rows) + 37, 37)
        for row in mixed_store.workloads(replace(query, offset=offset, limit=37)).to_pylist()
    ]
    assert len(rows) > 10
    assert pages == expected
    assert mixed_store.count_workloads(query) == Counter(row["state"] for row in rows)


WASTED_MS = {f"w{number:03}": 5_000.0 * number for number in range(0, 120, 3)}
USUAL = {("", 1): 0.5, ("", 8): 0.25}


def get_figure(row: dict[str, Any], order_by: str) -> float | None:
    """Return what a row is ordered by where figures from outside take part."""
    wasted, gpu_ms = WASTED_MS.get(row["workload"]), get_value(row, "gpu_ms")
    if order_by == "figure":
        return wasted
    if not gpu_ms or gpu_ms < 0:
        return None
    efficiency = max(0.0, 1 - (wasted or 0) / gpu_ms)
    usual = USUAL.get(("", row["gpus_requested"]))
    if order_by == "efficiency":
        return efficiency
    return None if usual is None or get_value(row, "run_ms") < 200 else efficiency - usual


@pytest.mark.parametrize("order_by", ["figure", "efficiency", "over_usual"])
@pytest.mark.parametrize("descending", [True, False])
def test_figures_from_outside_order_workloads(
    mixed_store: EmbeddedStore, order_by: str, descending: bool
) -> None:
    figures = OrderFigures(WASTED_MS, usual=USUAL, least_run_ms=200)
    rows = mixed_store.workloads(WorkloadQuery()).to_pylist()
    rows.sort(key=get_begin, reverse=True)
    known = [row for row in rows if get_figure(row, order_by) is not None]
    known.sort(key=lambda row: get_figure(row, order_by) or 0.0, reverse=descending)
    expected = known + [row for row in rows if get_figure(row, order_by) is None]
    query = WorkloadQuery(
        where=Comparison("workload", "ne", "w999"),
        order_by=order_by,
        descending=descending,
        figures=figures,
        now_ms=NOW_MS,
    )
    page = mixed_store.workloads(replace(query, offset=7, limit=90)).to_pylist()
    assert [row["workload"] for row in page] == [row["workload"] for row in expected[7:97]]
    assert len({get_figure(row, order_by) for row in expected}) > 4


def test_a_workload_without_a_figure_can_have_one(mixed_store: EmbeddedStore) -> None:
    figures = OrderFigures({"w001": -1.0, "w002": 1.0}, others=0.0)
    query = WorkloadQuery(order_by="figure", figures=figures, descending=False, limit=200)
    names = mixed_store.workloads(query)["workload"].to_pylist()
    assert (names[0], names[-1]) == ("w001", "w002")


@pytest.mark.parametrize("from_ms", [None, 300, 1499, 1500])
def test_a_span_has_those_that_had_not_ended_before_it(
    mixed_store: EmbeddedStore, from_ms: int | None
) -> None:
    everything = mixed_store.workloads(WorkloadQuery()).to_pylist()
    expected = set()
    for row in everything:
        over = row["end_ms"] or (1500 if row["state"] not in ("running", "pending") else None)
        if from_ms is None or over is None or over > from_ms:
            expected.add(row["workload"])
    query = WorkloadQuery(from_ms=from_ms)
    found = mixed_store.workloads(query)
    assert set(found.column("workload").to_pylist()) == expected
    assert sum(mixed_store.count_workloads(query).values()) == len(expected)


def test_counts_and_pages_follow_every_change(tmp_path: Path) -> None:
    query = WorkloadQuery(order_by="run_ms")
    with open_store(tmp_path / "jobs.duckdb") as store:
        running = WorkloadStatus("a", WorkloadState.RUNNING)
        store.apply(Observation(10, workloads=(Workload("a"),), statuses=(running,)))
        assert store.count_workloads(query) == {"running": 1}
        assert store.workloads(query).column("workload").to_pylist() == ["a"]
        store.apply(Observation(20, statuses=(WorkloadStatus("a", WorkloadState.FAILED),)))
        assert store.count_workloads(query) == {"failed": 1}
        # Of this one nothing is known but its state.
        store.apply(Observation(30, statuses=(WorkloadStatus("b", WorkloadState.RUNNING),)))
        assert store.count_workloads(query) == {"failed": 1, "running": 1}
        assert set(store.workloads(query).column("workload").to_pylist()) == {"a", "b"}
        store.apply(Observation(40, workloads=(Workload("b", name="late"),)))
        assert store.workloads(query).column("name").to_pylist() == ["late", ""]
