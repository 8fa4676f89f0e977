"""Spans of time that were imported: how long their samples are kept, whatever their age."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from marey.model.times import HOUR_MS
from marey.store.embedded import documents

# The kind of document that `import` leaves behind, one per imported span.
IMPORTED_KIND = "imported_span"


@dataclass(frozen=True, slots=True)
class ImportedSpan:
    """Imported history ``[from, to]``; without ``keep_ms`` its raw samples are kept for ever."""

    from_ms: int
    to_ms: int
    keep_ms: int | None = None

    def protects(self, hour_ms: int, now_ms: int) -> bool:
        """Return whether samples of this hour are not to be reduced yet."""
        touched = hour_ms + HOUR_MS > self.from_ms and hour_ms <= self.to_ms
        return touched and (self.keep_ms is None or hour_ms + HOUR_MS > now_ms - self.keep_ms)


def read_imported_spans(connection: duckdb.DuckDBPyConnection) -> list[ImportedSpan]:
    """Return the spans that were imported into this file, but those left to the retention."""
    return parse_imported_spans(documents.list_documents(connection, IMPORTED_KIND))


def parse_imported_spans(named: Mapping[str, Any]) -> list[ImportedSpan]:
    """Return the spans in these documents; one that is left to the retention is none."""
    return [
        ImportedSpan(one["from_ms"], one["to_ms"], one["keep_ms"])
        for one in named.values()
        if not one["as_retention"]
    ]


def leave_out_imported(
    spans: Iterable[tuple[int, int]], imported: Iterable[ImportedSpan], now_ms: int
) -> list[tuple[int, int]]:
    """Return the spans without the hours that an import protects, joined where they touch."""
    kept = list(imported)
    found: list[tuple[int, int]] = []
    for from_ms, to_ms in spans:
        open_ms: int | None = None
        for hour_ms in range(from_ms, to_ms, HOUR_MS):
            free = not any(span.protects(hour_ms, now_ms) for span in kept)
            if free and open_ms is None:
                open_ms = hour_ms
            elif not free and open_ms is not None:
                found.append((open_ms, hour_ms))
                open_ms = None
        if open_ms is not None:
            found.append((open_ms, to_ms))
    return found
