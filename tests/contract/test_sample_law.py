"""Whatever is written in whatever order, a SampleStore equals a plain dictionary of samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marey.model.times import HOUR_MS
from tests.contract.sample_rows import T0, Key, NewStore, batch_of, everything, scanned

_VALUES = st.one_of(st.none(), st.integers(0, 100).map(float))
_ROWS = st.tuples(
    st.integers(0, 12).map(lambda k: T0 + k * (HOUR_MS // 4)),
    st.sampled_from(["n0:0", "n0:1", "n1:0"]),
    st.sampled_from([None, "j1", "j2"]),
    st.fixed_dictionaries({"util": _VALUES, "power": _VALUES}).map(
        lambda values: {name: v for name, v in values.items() if v is not None}
    ),
)
_STEPS = st.lists(
    st.one_of(
        st.lists(_ROWS, min_size=1, max_size=6),
        st.integers(0, 5).map(lambda hours: T0 + hours * HOUR_MS),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.slow
@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=_STEPS)
def test_a_store_equals_a_dictionary(new_sample_store: NewStore, steps: list[Any]) -> None:
    store = new_sample_store()
    model: dict[Key, float] = {}
    holders: dict[tuple[int, str], str | None] = {}
    for step in steps:
        if isinstance(step, int):
            store.maintain(step)
            continue
        store.append([batch_of(step)])
        for time_ms, entity, workload, values in step:
            if values:
                holders[time_ms, entity] = workload
            for metric, value in values.items():
                model[time_ms, entity, metric] = value
    assert scanned(store, everything("util", "power")) == model
    for workload in ("j1", "j2"):
        own = {k: v for k, v in model.items() if holders[k[0], k[1]] == workload}
        assert scanned(store, everything("util", "power", workload=workload)) == own
    for row in store.statistics(everything("util", "power"), [0.5]).table.to_pylist():
        values = [v for k, v in sorted(model.items()) if k[1:] == (row["entity"], row["metric"])]
        assert row["count"] == len(values)
        assert row["mean"] == pytest.approx(np.mean(values))
        assert row["quantiles"] == pytest.approx([np.median(values)])
        assert (row["min"], row["max"], row["last"]) == (min(values), max(values), values[-1])
    table = store.series(everything("util", "power"), 4).table
    for entity, metric in {(k[1], k[2]) for k in model}:
        values = [v for k, v in sorted(model.items()) if k[1:] == (entity, metric)]
        kept = [
            row["value"]
            for row in table.to_pylist()
            if (row["entity"], row["metric"]) == (entity, metric)
        ]
        assert len(kept) <= 4
        assert {min(values), max(values), values[0], values[-1]} == {
            min(kept),
            max(kept),
            kept[0],
            kept[-1],
        }
