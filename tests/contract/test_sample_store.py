"""What every SampleStore promises, example by example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marey.model.errors import InvalidInput
from marey.model.metrics import Entity
from marey.model.protocols import Selection
from marey.model.times import HOUR_MS
from tests.contract.sample_rows import (
    FOREVER,
    T0,
    TICK,
    NewStore,
    Row,
    batch_of,
    everything,
    scanned,
)


def tick(k: int, value: float = 50.0, entity: str = "n0:0", workload: str | None = "j1") -> Row:
    return (T0 + k * TICK, entity, workload, {"util": value})


def test_samples_come_back_as_they_were_given(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    store.append([batch_of([tick(k, k % 100) for k in range(300)])])
    found = scanned(store, everything())
    assert found == {(T0 + k * TICK, "n0:0", "util"): float(k % 100) for k in range(300)}


def test_a_span_is_half_open(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    store.append([batch_of([tick(k) for k in range(10)])])
    found = scanned(store, Selection(("util",), T0 + 2 * TICK, T0 + 5 * TICK))
    assert sorted(key[0] for key in found) == [T0 + k * TICK for k in (2, 3, 4)]


def test_gaps_stay_gaps(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    store.append([batch_of([tick(k) for k in (0, 1, 2, 400, 401)])])
    store.maintain(T0 + 5 * HOUR_MS)
    times = store.series(everything("util"), 100).table.column("time_ms").to_pylist()
    assert times == [T0 + k * TICK for k in (0, 1, 2, 400, 401)]


def test_the_last_write_wins_and_nothing_is_doubled(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    store.append([batch_of([tick(0, 10), tick(1, 20)])])
    store.append([batch_of([tick(1, 21), tick(0, 11)])])
    assert scanned(store, everything()) == {
        (T0, "n0:0", "util"): 11.0,
        (T0 + TICK, "n0:0", "util"): 21.0,
    }


def test_duplicates_within_one_batch_keep_the_last(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    store.append([batch_of([tick(0, 10), tick(0, 12), tick(1, 5), tick(0, 14)])])
    assert scanned(store, everything())[T0, "n0:0", "util"] == 14.0
    assert store.statistics(everything()).table.column("count").to_pylist() == [2]


def test_a_late_sample_of_a_finished_hour_replaces(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    store.append([batch_of([tick(k, 1) for k in range(300)])])
    store.maintain(T0 + 3 * HOUR_MS)
    store.append([batch_of([tick(7, 99), (T0 + 7, "n0:0", "j1", {"util": 3.0})])])
    store.maintain(T0 + 4 * HOUR_MS)
    found = scanned(store, everything())
    assert len(found) == 301
    assert found[T0 + 7 * TICK, "n0:0", "util"] == 99.0
    assert found[T0 + 7, "n0:0", "util"] == 3.0


def test_metrics_of_one_moment_may_come_apart(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    store.append([batch_of([(T0, "n0:0", "j1", {"util": 5.0, "power": 100.0})])])
    store.append([batch_of([(T0, "n0:0", "j1", {"mem_used": 7.0, "power": 110.0})])])
    assert scanned(store, everything()) == {
        (T0, "n0:0", "util"): 5.0,
        (T0, "n0:0", "power"): 110.0,
        (T0, "n0:0", "mem_used"): 7.0,
    }


def test_a_metric_may_appear_and_vanish(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    store.append([batch_of([tick(0)])])
    store.maintain(T0 + 2 * HOUR_MS)
    store.append([batch_of([(T0 + TICK, "n0:0", "j1", {"fan": 30.0})])])
    store.append([batch_of([tick(2)])])
    found = scanned(store, Selection(("util", "fan"), 0, FOREVER))
    assert {(key[0] - T0) // TICK: key[2] for key in found} == {0: "util", 1: "fan", 2: "util"}


def test_a_clock_that_jumps_back_loses_nothing(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    for k in (0, 1, 2, 500, 501, 3, 4, 2):
        store.append([batch_of([tick(k, k % 100)])])
    store.maintain(T0 + HOUR_MS)
    assert {(key[0] - T0) // TICK: v for key, v in scanned(store, everything()).items()} == {
        k: float(k % 100) for k in (0, 1, 2, 3, 4, 500, 501)
    }


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 9223372036854775794.0, 1e30, -400.0])
def test_no_value_is_not_a_value(new_sample_store: NewStore, bad: float) -> None:
    store = new_sample_store()
    store.append([batch_of([tick(0, bad), tick(1, 40)])])
    assert scanned(store, everything()) == {(T0 + TICK, "n0:0", "util"): 40.0}
    assert store.statistics(everything("util")).table.column("max").to_pylist() == [40.0]


def test_values_are_rounded_to_the_metric_s_resolution(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    store.append([batch_of([(T0, "n0:0", None, {"util": 49.6, "tensor_active": 33.333})])])
    found = scanned(store, everything("util", "tensor_active"))
    assert found[T0, "n0:0", "util"] == 50.0
    assert found[T0, "n0:0", "tensor_active"] == pytest.approx(33.3, abs=1e-5)


def test_an_unknown_metric_is_refused_and_nothing_of_its_step_kept(
    new_sample_store: NewStore,
) -> None:
    store = new_sample_store()
    wrong = batch_of([(T0, "n0:0", None, {'x"; DROP TABLE gpu_hot; --': 1.0})])
    with pytest.raises(InvalidInput, match="metric"):
        store.append([batch_of([tick(0)]), wrong])
    assert scanned(store, everything()) == {}
    with pytest.raises(InvalidInput, match="metric"):
        store.series(everything("utl"), 10)


def test_a_metric_of_a_host_is_not_one_of_a_gpu(new_sample_store: NewStore) -> None:
    with pytest.raises(InvalidInput, match="host"):
        new_sample_store().append([batch_of([(T0, "n0:0", None, {"host_cpu": 1.0})])])


def test_hosts_and_gpus_are_kept_apart(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    store.append([batch_of([(T0, "n0", None, {"host_cpu": 12.0})], kind=Entity.HOST)])
    store.append([batch_of([tick(0, entity="n0")])])
    assert scanned(store, everything("host_cpu", kind=Entity.HOST)) == {
        (T0, "n0", "host_cpu"): 12.0
    }
    assert scanned(store, everything("util")) == {(T0, "n0", "util"): 50.0}


def test_clusters_are_kept_apart(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    store.append([batch_of([tick(0, 1)], cluster="a"), batch_of([tick(0, 2)], cluster="b")])
    assert list(scanned(store, everything(cluster="a")).values()) == [1.0]
    assert list(scanned(store, everything(cluster="b")).values()) == [2.0]
    assert scanned(store, everything(cluster="c")) == {}
    assert store.span("c") is None
    assert store.span("a") == (T0, T0)


def test_a_workload_selects_the_samples_written_while_it_held_the_gpu(
    new_sample_store: NewStore,
) -> None:
    store = new_sample_store()
    rows = [tick(k, k, workload="first" if k < 5 else "second") for k in range(10)]
    store.append([batch_of([*rows, tick(0, 90, "n0:1", None)])])
    for _ in range(2):
        found = scanned(store, everything("util", workload="second"))
        assert sorted(found.values()) == [5.0, 6.0, 7.0, 8.0, 9.0]
        assert scanned(store, everything("util", workload="nobody")) == {}
        store.maintain(T0 + 2 * HOUR_MS)


def test_entities_select_by_name_and_unknown_ones_find_nothing(
    new_sample_store: NewStore,
) -> None:
    store = new_sample_store()
    store.append([batch_of([tick(0, i, f"n{i}:0") for i in range(5)])])
    found = scanned(store, everything(entities=("n1:0", "n3:0", "n9:0")))
    assert {key[1] for key in found} == {"n1:0", "n3:0"}
    assert store.series(everything(entities=("n9:0",)), 10).table.num_rows == 0


@pytest.mark.parametrize("name", ["n" * 1_000_000 + ":0", "\x00\ud800:0", "'); DROP TABLE x; --:1"])
def test_hostile_names_do_no_harm(new_sample_store: NewStore, name: str) -> None:
    store = new_sample_store()
    store.append([batch_of([tick(0, 33, name, name)])])
    (key,) = scanned(store, everything(entities=(name,)))
    assert len(key[1]) < 300
    assert list(scanned(store, everything(workload=name)).values()) == [33.0]


def test_series_keep_extremes_first_and_last_within_the_points(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    values = [50.0] * 2000
    values[777], values[1234] = 3.0, 98.0
    values[0], values[-1] = 11.0, 12.0
    store.append([batch_of([tick(k, v) for k, v in enumerate(values)])])
    table = store.series(everything("util"), 40).table
    assert table.column_names == ["entity", "metric", "time_ms", "value"]
    assert 4 <= table.num_rows <= 40
    points = dict(
        zip(table.column("time_ms").to_pylist(), table.column("value").to_pylist(), strict=True)
    )
    assert {3.0, 98.0, 11.0, 12.0} <= set(points.values())
    assert list(points) == sorted(points)
    assert all(values[(t - T0) // TICK] == v for t, v in points.items()), "actual samples only"


def test_few_samples_are_all_in_the_series(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    store.append([batch_of([tick(k, k) for k in range(50)])])
    assert store.series(everything("util"), 50).table.num_rows == 50


def test_histograms_count_every_value_once(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    values = [0.0, 24.0, 25.0, 99.0, 100.0, 104.0]
    rows = [tick(k, v) for k, v in enumerate(values)]
    store.append([batch_of([*rows, (T0 + 9 * TICK, "n0:0", "j1", {"power": 10.0})])])
    answer = store.histograms(everything("util"), 4)
    assert answer.table.to_pylist() == [
        {
            "entity": "n0:0",
            "metric": "util",
            "low": 0.0,
            "high": 100.0,
            "counts": [2, 1, 0, 3],
            "missing": 1,
        }
    ]
    assert not answer.approximate
    given_range = store.histograms(everything("util"), 2, [(20.0, 30.0)]).table
    assert given_range.column("counts").to_pylist() == [[1, 1]]


def test_bins_of_fractional_values_have_exact_edges(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    rows = [(T0 + k, "n0:0", None, {"tensor_active": k / 10}) for k in range(1001)]
    store.append([batch_of(rows)])
    counts = store.histograms(everything("tensor_active"), 10).table.column("counts").to_pylist()
    assert counts == [[100] * 9 + [101]]


@pytest.mark.parametrize(("bins", "ranges"), [(0, ()), (4, ((5.0, 5.0),)), (4, ((0.0, 1.0),) * 2)])
def test_impossible_histograms_are_refused(
    new_sample_store: NewStore, bins: int, ranges: Any
) -> None:
    store = new_sample_store()
    store.append([batch_of([tick(0)])])
    with pytest.raises(InvalidInput):
        store.histograms(everything("util"), bins, ranges)


def test_statistics_are_exact(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    random = np.random.default_rng(7)
    util = random.integers(0, 101, 999).astype(float)
    energy = np.cumsum(random.random(999) * 1e6).astype(np.float32).astype(float)
    rows = [
        (T0 + k * TICK, "n0:0", "j", {"util": u, "energy": e})
        for k, (u, e) in enumerate(zip(util, energy, strict=True))
    ]
    store.append([batch_of(rows)])
    asked = [0.0, 0.05, 0.5, 0.95, 1.0]
    answer = store.statistics(everything("util", "energy"), asked)
    assert not answer.approximate
    for row in answer.table.to_pylist():
        values = util if row["metric"] == "util" else energy
        assert (row["count"], row["min"], row["max"]) == (999, values.min(), values.max())
        assert row["mean"] == pytest.approx(values.mean())
        assert row["std"] == pytest.approx(values.std(), rel=1e-6)
        assert row["quantiles"] == pytest.approx(np.quantile(values, asked).tolist())
        assert (row["first_ms"], row["last_ms"]) == (T0, T0 + 998 * TICK)
        assert row["last"] == values[-1]


def test_a_quantile_beyond_one_is_refused(new_sample_store: NewStore) -> None:
    with pytest.raises(InvalidInput, match="0 to 1"):
        new_sample_store().statistics(everything("util"), [95])


def test_latest_is_the_newest_value_of_each_metric(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    store.append([batch_of([(T0, "n0:0", None, {"util": 1.0, "power": 100.0})])])
    store.append([batch_of([tick(1, 2), tick(1, 9, "n0:1")])])
    store.append([batch_of([tick(0, 7, "n0:1")])])
    batch = store.latest("default", Entity.GPU, T0)
    found = {
        name: {m: float(batch.columns[m][row]) for m in ("util", "power")}
        for row, name in enumerate(batch.entities[i] for i in batch.entity)
    }
    assert found["n0:0"] == {"util": 2.0, "power": 100.0}
    assert found["n0:1"]["util"] == 9.0
    assert np.isnan(found["n0:1"]["power"])
    newer = store.latest("default", Entity.GPU, T0 + TICK)
    assert np.isnan(newer.columns["power"]).all()
    assert len(store.latest("default", Entity.GPU, T0 + HOUR_MS)) == 0


def test_an_empty_store_answers_with_empty_tables(new_sample_store: NewStore) -> None:
    store = new_sample_store()
    assert store.span("default") is None
    assert list(store.scan(everything())) == []
    assert store.series(everything(), 10).table.num_rows == 0
    assert store.histograms(everything(), 10).table.num_rows == 0
    assert store.statistics(everything(), [0.5]).table.num_rows == 0
    assert len(store.latest("default", Entity.GPU, 0)) == 0
    store.append([])
    store.maintain(T0)
