"""A site's own history in the store: waits are learned from it, and slow hosts become evidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from marey.app.diagnosis.diagnosis_query import AskDiagnosis
from marey.app.queries.site_runs import read_runs
from marey.app.queries.workspace import Workspace
from marey.app.queue.learned_waits import fit_site
from marey.app.queue.live_line import read_line
from marey.app.queue.performance_queries import AskPerformance, AskRunTime
from marey.app.queue.queue_queries import AskForecastRecord, AskLine, AskStart, AskWhy
from marey.app.queue.site_history import read_site_history
from marey.live.summary import SummaryLog
from marey.model.inventory import Gpu, Host, HostState, HostStatus
from marey.model.metrics import Entity
from marey.model.names import DEFAULT_CLUSTER
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.model.times import DAY_MS, HOUR_MS, MINUTE_MS
from marey.model.workloads import Allocation, Progress, Workload, WorkloadState, WorkloadStatus
from marey.queue.forecast.forecaster import NotEnoughHistory
from marey.queue.policy.inferred_policy import find_largest_hold
from marey.queue.policy.recorded_jobs import NOT_YET_MS
from marey.store.embedded.embedded_store import open_store
from tests.app.small_cluster import HandClock

pytestmark = pytest.mark.slow

BEGIN_MS = 1_794_182_400_000
DAYS, HOSTS, SLOW = 7, 8, "h5"
NOW_MS = BEGIN_MS + DAYS * DAY_MS


def build_history() -> list[Observation]:
    """Return a week of repeated runs on eight hosts, one of them a third slower, and who waits."""
    draws = np.random.default_rng(2)
    told = [
        Observation(
            time_ms=BEGIN_MS,
            hosts=tuple(Host(f"h{i}", "r1", "s1", f"h{i}", ("gpu",)) for i in range(HOSTS)),
            gpus=tuple(
                Gpu(f"h{i}", 0, None, f"GPU-{i}", "A100", 400.0, 80_000.0) for i in range(HOSTS)
            ),
            host_states=tuple(HostStatus(f"h{i}", HostState.UP) for i in range(HOSTS)),
        )
    ]
    for i in range(400):
        host = f"h{i % HOSTS}"
        submit = BEGIN_MS + round(draws.uniform(0, (DAYS - 1) * DAY_MS))
        start = submit + round(5 * HOUR_MS * draws.lognormal(0, 0.3))
        run = (1.35 if host == SLOW else 1.0) * 40 * MINUTE_MS * draws.normal(1, 0.02)
        told += _run(f"run-{i}", f"train{i % 4}", (submit, start, start + round(run)), host)
    told.append(_wait("late", NOW_MS - HOUR_MS))
    told.append(_hold("on-slow", SLOW))
    return sorted(told, key=lambda one: one.time_ms)


def _run(name: str, work: str, times: tuple[int, int, int], host: str) -> list[Observation]:
    submit, start, end = times

    def see(at: int, state: WorkloadState, **known: int) -> Observation:
        workload = Workload(
            name, name=work, user="ada", project="lab", partition="gpu", gpus_requested=1,
            time_limit_s=7200, submit_ms=submit, **known,
        )  # fmt: skip
        held = (Allocation(name, f"{host}:0", 0, 0),) if state is WorkloadState.RUNNING else ()
        return Observation(
            time_ms=at, workloads=(workload,), statuses=(WorkloadStatus(name, state),),
            allocations=held,
        )  # fmt: skip

    speed = 1000.0 * 40 * MINUTE_MS / (end - start)
    reported = Observation(
        time_ms=start + MINUTE_MS, progress=(Progress(name, start + MINUTE_MS, 1, speed, "img/s"),)
    )
    return [
        see(submit, WorkloadState.PENDING),
        *([reported] if end < NOW_MS else []),
        see(start, WorkloadState.RUNNING, start_ms=start),
        see(end, WorkloadState.COMPLETED, start_ms=start, end_ms=end),
    ]


def _wait(name: str, submit_ms: int) -> Observation:
    workload = Workload(
        name, name="train0", user="bob", project="lab", partition="gpu", gpus_requested=1,
        time_limit_s=7200, submit_ms=submit_ms,
    )  # fmt: skip
    status = WorkloadStatus(name, WorkloadState.PENDING, "Priority", 5.0)
    return Observation(time_ms=NOW_MS, workloads=(workload,), statuses=(status,))


def _hold(name: str, host: str) -> Observation:
    return _run(name, "train1", (NOW_MS - HOUR_MS, NOW_MS - HOUR_MS, NOW_MS), host)[1]


def _load_fabric() -> list[SampleBatch]:
    """Return an hourly week of two hosts' network traffic."""
    hours = np.arange(BEGIN_MS, NOW_MS, HOUR_MS)
    return [
        SampleBatch(
            kind=Entity.HOST,
            time_ms=np.tile(hours, 2),
            entities=("h0", "h1"),
            entity=np.repeat(np.array([0, 1], np.int32), len(hours)),
            columns={
                "host_net_rx": np.tile(np.linspace(1e3, 2e3, len(hours), dtype=np.float32), 2)
            },
        )
    ]


@pytest.fixture(scope="module")
def site() -> Iterator[Workspace]:
    store = open_store(None)
    store.ingest(build_history(), [])
    store.append(_load_fabric())
    yield Workspace(store, HandClock(NOW_MS), {}, SummaryLog(store))
    store.close()


def ask(site: Workspace, question: Any) -> Any:
    return msgspec.to_builtins(question.ask(site), str_keys=True)


def test_the_line_is_forecast_by_what_was_learned_and_says_from_how_much(site: Workspace) -> None:
    line = ask(site, AskLine())
    assert line["method"].startswith("learned from ")
    assert line["method"].endswith(" days of this site's own history")
    [row] = line["rows"]
    assert 0.3 * 3600 < row["p50_s"] < 12 * 3600


def test_why_and_ask_and_the_record_name_the_same_method(site: Workspace) -> None:
    why = ask(site, AskWhy("late"))
    assert why["start"]["method"].startswith("learned from ")
    assert why["start"]["record"].startswith("Not enough history: 0 of 30 forecasts scored")
    assert ask(site, AskStart(1))["method"] == why["start"]["method"]
    assert ask(site, AskForecastRecord())["method"] == why["start"]["method"]


def test_early_on_there_is_not_enough_history(site: Workspace) -> None:
    assert fit_site(site.store, "default", NOW_MS).days >= 6
    with pytest.raises(NotEnoughHistory, match="forecasts need 200 on 3"):
        fit_site(site.store, "default", BEGIN_MS + DAY_MS)


def test_a_slow_host_is_found_and_becomes_evidence_of_the_diagnosis(site: Workspace) -> None:
    slow = ask(site, AskPerformance())["slow_hosts"]
    assert [row["host"] for row in slow] == [SLOW]
    found = ask(site, AskDiagnosis("on-slow"))["findings"]
    assert any(f"slower than it should be on {SLOW}" in str(one["evidence"]) for one in found)
    other = ask(site, AskDiagnosis("run-0"))["findings"]
    assert "slower than it should be" not in str(other)


def test_speed_comes_with_throughput_in_an_interval_and_its_dominant_features(
    site: Workspace,
) -> None:
    told = ask(site, AskRunTime("on-slow"))
    assert told["slowest_host"] == SLOW
    assert told["p10_s"] < 40 * 60 * 1.35 < told["p90_s"] * 1.1
    assert told["throughput"]["unit"] == "img/s"
    assert told["throughput"]["p10"] <= told["throughput"]["p50"] <= told["throughput"]["p90"]
    assert told["throughput"]["p50"] == pytest.approx(1000 / 1.35, rel=0.1)
    assert told["efficiency"] is None
    assert "Throughput: " in told["sentence"]
    if told["features"]:
        assert told["features"][0]["name"] == "host_slowness"


def test_the_load_of_the_fabric_is_taken_from_the_store(site: Workspace) -> None:
    runs = read_runs(site, "default", load=True).runs
    load = runs.state["fabric_load"]
    assert "file_system_load" not in runs.state
    assert load.min() < 0.7
    assert load.max() <= 1.0
    assert np.corrcoef(load, runs.start_s)[0, 1] > 0.95


def test_who_still_waits_is_replayed_too_but_held_nothing(site: Workspace) -> None:
    jobs = read_site_history(site, DEFAULT_CLUSTER, "gpu", 7).jobs
    late = jobs.start_ms == NOT_YET_MS
    assert late.sum() == len(read_line(site, DEFAULT_CLUSTER).waiters) > 0
    assert np.isnan(jobs.wait_s[late]).all()
    # Of a limit of two hours they run as long as others did: 40 minutes.
    assert np.allclose(jobs.run_ms[late], 40 * MINUTE_MS, rtol=0.3)
    assert any("still wait" in note for note in jobs.notes)
    ada = jobs.gpus[(jobs.owner == jobs.owners.index("ada")) & ~late]
    assert find_largest_hold(jobs) <= ada.sum()
