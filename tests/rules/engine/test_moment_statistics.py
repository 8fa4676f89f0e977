from __future__ import annotations

import numpy as np

from marey.rules.engine.moment_statistics import ROWS_AT_ONCE, statistic_of
from marey.rules.language.expressions import Statistic
from marey.stats.sketches import sketch
from marey.stats.sketches.sketch_tables import Span

SPAN = Span(0.0, 100.0)


def test_a_quantile_of_many_rows_is_the_same_row_by_row() -> None:
    rows = 2 * ROWS_AT_ONCE + 3
    values = np.random.default_rng(5).integers(0, 101, rows)
    agg, bins = sketch.empty_agg(rows), sketch.empty_bins(rows)
    agg[:, sketch.COUNT] = 1
    agg[:, [sketch.MIN, sketch.MAX, sketch.LAST]] = values[:, None]
    bins[np.arange(rows), values] = 1
    asked: list[slice] = []

    def some(part: slice) -> np.ndarray:
        asked.append(part)
        return bins[part]

    found = statistic_of(Statistic("p", quantile=50.0), agg, some, SPAN)
    assert found.tolist() == values.tolist()
    assert [part.start for part in asked] == [0, ROWS_AT_ONCE, 2 * ROWS_AT_ONCE]
    assert asked[-1].stop == rows
