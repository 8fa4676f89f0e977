"""A scan comes in parts that fit into memory; how it is cut changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marey.model.protocols import Selection
from marey.model.samples import SampleBatch, concatenate
from marey.model.times import HOUR_MS, MINUTE_MS
from marey.store.embedded.embedded_store import open_store
from marey.store.samples import sample_queries

START = 1_794_182_400_000


@pytest.mark.parametrize("limit", ["_SCAN_ROWS", "_SCAN_VALUES"])
def test_a_crowded_hour_is_read_in_parts_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    names = tuple(f"n{i}:0" for i in range(8))
    with open_store(tmp_path / "s.marey") as store:
        for tick in range(3 * 60):
            times = np.full(8, START + tick * MINUTE_MS, np.int64)
            util = np.full(8, float(tick % 100), np.float32)
            codes = np.arange(8, dtype=np.int32)
            store.append([SampleBatch(times, codes, names, {"util": util})])
        store.maintain(START + 4 * HOUR_MS)
        selection = Selection(("util",), START, START + 3 * HOUR_MS)
        whole = concatenate(store.scan(selection))
        monkeypatch.setattr(sample_queries, limit, 50)
        parts = list(store.scan(selection))
        assert max(len(part) for part in parts) <= 50
        assert concatenate(parts).equals(whole)
        ends = [(int(part.time_ms[0]), int(part.time_ms[-1])) for part in parts]
        assert ends == sorted(ends)
        assert len(whole) == 3 * 60 * 8
