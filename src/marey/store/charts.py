"""Answers from raw samples where they are all there is, from sketches too where they are not."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.answers import HISTOGRAMS, SERIES, STATISTICS
from marey.model.protocols import Answer, Selection
from marey.store import answers, sketches
from marey.store.columns import Column
from marey.store.queries import Reader, checked_points, checked_quantiles
from marey.store.rows import one_row
from marey.store.samples import SampleTables


class Charts:
    """Answers one question through one connection."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, tables: SampleTables, selection: Selection
    ) -> None:
        self._connection = connection
        self._reader = Reader(connection, tables)
        self._selection = selection
        self._asked = self._reader.columns(selection)
        self._columns = [column for column in self._asked if column.code >= 0]
        self._reduced = self._find_reduced(tables)

    def _find_reduced(self, tables: SampleTables) -> str | None:
        """The condition that selects sketches, where there are any for this question."""
        if self._selection.from_ms >= tables.reduced_before[self._selection.kind]:
            return None
        reduced = self._reader.where_reduced(self._selection)
        if reduced is None or not self._columns:
            return None
        codes = ", ".join(str(column.code) for column in self._columns)
        table = f"{self._selection.kind}_sketches"
        row = one_row(
            self._connection,
            f"SELECT count(*) FROM {table} WHERE {reduced} AND metric IN ({codes})",
        )
        return reduced if row and row[0] else None

    def series(self, points: int) -> Answer:
        """Downsampled series that keep extremes."""
        points = checked_points(points)
        if self._reduced is None:
            tables = (
                answers.series_of(rows, self._columns, self._reader.names(rows.codes), points)
                for rows in self._reader.parts(self._selection)
            )
            return Answer(answers.joined(tables, SERIES))
        raw = list(self._reader.parts(self._selection))
        mixed = (
            sketches.series_from(
                self._connection,
                self._selection.kind,
                column,
                self._reduced or "",
                raw,
                self._reader.names,
                points,
            )
            for column in self._columns
        )
        return Answer(answers.joined(mixed, SERIES), approximate=True)

    def histograms(self, bins: int, ranges: Sequence[tuple[float, float]]) -> Answer:
        """Counts per entity and metric over equal bins."""
        asked = answers.checked_ranges(self._asked, bins, ranges)
        if self._reduced is None:
            tables = (
                answers.histograms_of(
                    rows, self._columns, self._reader.names(rows.codes), bins, asked
                )
                for rows in self._reader.parts(self._selection, with_time=False)
            )
            return Answer(answers.joined(tables, HISTOGRAMS))
        mixed = [
            sketches.histograms_from(figures, name, names, bins, asked[name])
            for name, names, figures in self._figures()
        ]
        return Answer(answers.joined(mixed, HISTOGRAMS), approximate=True)

    def statistics(self, quantiles: Sequence[float]) -> Answer:
        """Count, extremes, mean, deviation, first, last and quantiles per entity and metric."""
        asked = checked_quantiles(quantiles)
        if self._reduced is None:
            tables = (
                answers.statistics_of(rows, self._columns, self._reader.names(rows.codes), asked)
                for rows in self._reader.parts(self._selection)
            )
            return Answer(answers.joined(tables, STATISTICS))
        return Answer(self._mixed_statistics(asked), approximate=True)

    def _mixed_statistics(self, asked: NDArray[np.float64]) -> pa.Table:
        mixed = [
            sketches.statistics_from(figures, name, names, asked)
            for name, names, figures in self._figures()
        ]
        return answers.joined(mixed, STATISTICS)

    def _figures(self) -> list[tuple[str, list[str], sketches.Figures]]:
        parts: dict[str, list[sketches.Figures]] = {
            column.name: [self._of_sketches(column)] for column in self._columns
        }
        for rows in self._reader.parts(self._selection):
            for column in self._columns:
                parts[column.name].append(sketches.figures_of_rows(rows, column))
        found = ((name, sketches.merged(own)) for name, own in parts.items())
        return [(name, self._reader.names(f.codes), f) for name, f in found if len(f.codes)]

    def _of_sketches(self, column: Column) -> sketches.Figures:
        kind = self._selection.kind
        return sketches.figures_of_sketches(self._connection, kind, column, self._reduced or "")
