"""What the server encodes, a client decodes to the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from marey.live import wire_format
from marey.live.quantise import NO_VALUE, live_scales
from marey.model.metrics import EVERYDAY, metric_named

codes = arrays(np.uint16, st.integers(0, 200), elements=st.integers(0, 65535))


@given(codes)
def test_a_full_column_comes_back_as_it_was(column: np.ndarray) -> None:
    assert np.array_equal(wire_format.read_full_column(wire_format.full_column(column)), column)


@given(codes, codes)
def test_differences_rebuild_the_column_also_when_rows_were_added(
    before: np.ndarray, now: np.ndarray
) -> None:
    before = before[: len(now)]
    payload = wire_format.changed_column(now, before)
    assert np.array_equal(wire_format.read_changed_column(payload, before), now)


def test_a_message_carries_its_parts_and_their_facts() -> None:
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})
    parts = [
        wire_format.table_part("units", table, kept=True),
        wire_format.Part("metric:util", wire_format.PLANES, b"abc"),
    ]
    header, bodies = wire_format.split_message(
        wire_format.message({"type": "snapshot", "seq": 3}, parts)
    )
    assert header["type"] == "snapshot"
    assert header["parts"][0]["kept"] is True
    assert wire_format.read_table(bodies["units"]) == table
    assert bodies["metric:util"] == b"abc"


@pytest.mark.parametrize("name", EVERYDAY)
def test_a_live_value_is_off_by_at_most_half_its_stated_step(name: str) -> None:
    metric, scale = metric_named(name), live_scales()[name]
    values = np.linspace(metric.minimum, metric.maximum, 1001, dtype=np.float32)
    back = scale.values(scale.codes(values))
    # float32 itself is off by a few millionths of the range.
    slack = scale.step * 0.5 + (metric.maximum - metric.minimum) * 1e-6
    assert np.abs(back - values).max() <= slack


def test_no_value_and_nonsense_have_codes_of_their_own() -> None:
    scale = live_scales()["util"]
    given_values = np.array([np.nan, -5.0, 1e30, np.inf, -np.inf, 50.0], np.float32)
    assert scale.codes(given_values).tolist() == [NO_VALUE, 0, 100, 100, 0, 50]


def test_counts_that_would_be_rounded_are_not_offered_live() -> None:
    assert "energy" not in live_scales()
    assert "xid" in live_scales()
