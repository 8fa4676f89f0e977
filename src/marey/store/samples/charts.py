"""Answers from raw samples where they are all there is, from sketches too where they are not."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.answers import HISTOGRAMS, SERIES, STATISTICS
from marey.model.protocols import Answer, Selection
from marey.store.database.rows import fetch_one_row
from marey.store.samples import answers, sketches
from marey.store.samples.columns import Column
from marey.store.samples.sample_queries import SampleReader, check_points, check_quantiles
from marey.store.samples.sample_tables import SampleTables


class Charts:
    """Answers one question through one connection."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, tables: SampleTables, selection: Selection
    ) -> None:
        self._connection = connection
        self._reader = SampleReader(connection, tables)
        self._selection = selection
        self._asked = self._reader.columns(selection)
        self._columns = [column for column in self._asked if column.code >= 0]
        self._reduced = self._find_reduced(tables)

    def _find_reduced(self, tables: SampleTables) -> str | None:
        """Return the condition that selects sketches, where there are any for this question."""
        if self._selection.from_ms >= tables.reduced_before[self._selection.kind]:
            return None
        reduced = self._reader.where_reduced(self._selection)
        if reduced is None or not self._columns:
            return None
        codes = ", ".join(str(column.code) for column in self._columns)
        table = f"{self._selection.kind}_sketches"
        row = fetch_one_row(
            self._connection,
            f"SELECT count(*) FROM {table} WHERE {reduced} AND metric IN ({codes})",
        )
        return reduced if row and row[0] else None

    def series(self, points: int) -> Answer:
        """Return downsampled series that keep extremes."""
        points = check_points(points)
        if self._reduced is None:
            tables = (
                answers.make_series(rows, self._columns, self._reader.names(rows.codes), points)
                for rows in self._reader.parts(self._selection)
            )
            return Answer(answers.concatenate_tables(tables, SERIES))
        raw = list(self._reader.parts(self._selection))
        mixed = (
            sketches.read_reduced_series(
                self._connection,
                self._selection.kind,
                column,
                where=self._reduced or "",
                raw=raw,
                names=self._reader.names,
                points=points,
            )
            for column in self._columns
        )
        return Answer(answers.concatenate_tables(mixed, SERIES), approximate=True)

    def histograms(self, bins: int, ranges: Sequence[tuple[float, float]]) -> Answer:
        """Return counts per entity and metric over equal bins."""
        asked = answers.check_ranges(self._asked, bins, ranges)
        if self._reduced is None:
            tables = (
                answers.make_histograms(
                    rows, self._columns, self._reader.names(rows.codes), bins=bins, ranges=asked
                )
                for rows in self._reader.parts(self._selection, with_time=False)
            )
            return Answer(answers.concatenate_tables(tables, HISTOGRAMS))
        mixed = [
            sketches.make_histograms_from_figures(
                figures, name, names, bins=bins, asked=asked[name]
            )
            for name, names, figures in self._collect_figures()
        ]
        return Answer(answers.concatenate_tables(mixed, HISTOGRAMS), approximate=True)

    def statistics(self, quantiles: Sequence[float]) -> Answer:
        """Count, extremes, mean, deviation, first, last and quantiles per entity and metric."""
        asked = check_quantiles(quantiles)
        if self._reduced is None:
            tables = (
                answers.compute_statistics(
                    rows, self._columns, self._reader.names(rows.codes), asked
                )
                for rows in self._reader.parts(self._selection)
            )
            return Answer(answers.concatenate_tables(tables, STATISTICS))
        return Answer(self._compute_mixed_statistics(asked), approximate=True)

    def _compute_mixed_statistics(self, asked: NDArray[np.float64]) -> pa.Table:
        mixed = [
            sketches.compute_statistics_from_figures(figures, name, names, asked)
            for name, names, figures in self._collect_figures()
        ]
        return answers.concatenate_tables(mixed, STATISTICS)

    def _collect_figures(self) -> list[tuple[str, list[str], sketches.Figures]]:
        parts: dict[str, list[sketches.Figures]] = {
            column.name: [self._read_sketch_figures(column)] for column in self._columns
        }
        for rows in self._reader.parts(self._selection):
            for column in self._columns:
                parts[column.name].append(sketches.compute_row_figures(rows, column))
        found = ((name, sketches.merge_figures(own)) for name, own in parts.items())
        return [(name, self._reader.names(f.codes), f) for name, f in found if len(f.codes)]

    def _read_sketch_figures(self, column: Column) -> sketches.Figures:
        kind = self._selection.kind
        return sketches.read_sketch_figures(self._connection, kind, column, self._reduced or "")
