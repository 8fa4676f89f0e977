"""What keeps the file fast and small: finished hours rewritten, old ones reduced, older dropped."""

from __future__ import annotations

from dataclasses import dataclass

from marey.model.errors import InvalidInput
from marey.model.metrics import Entity
from marey.model.times import DAY_MS, HOUR_MS
from marey.store.database.database_file import Database
from marey.store.database.rows import fetch_one_row
from marey.store.embedded.imported_spans import leave_out_imported, read_imported_spans
from marey.store.samples.sample_tables import SampleTables, list_hours_before
from marey.store.samples.sketches import reduce_span

# An hour of 10,000 GPUs is put in order with this; with less, a day's rewrites took up to twice
# as long. Questions are content with less.
REWRITE_MEMORY_MB = 200


@dataclass(frozen=True, slots=True)
class Retention:
    """How many days raw samples and their hourly sketches are kept; None keeps them for ever."""

    raw_days: float | None = 30.0
    sketch_days: float | None = 400.0

    def __post_init__(self) -> None:
        for name, days in (("raw_days", self.raw_days), ("sketch_days", self.sketch_days)):
            if days is not None and not days > 0:
                raise InvalidInput(f"Retention {name} is {days}; allowed: more than 0, or none.")


def rewrite(database: Database, tables: SampleTables, kind: Entity, now_ms: int) -> bool:
    """Move every finished hour into the cold table, each few in one transaction."""
    with database.read() as connection:
        spans = list_hours_before(connection, f"{kind}_hot", _round_to_hour(now_ms))
    if spans:
        with database.raise_memory_limit(REWRITE_MEMORY_MB):
            for span in spans:
                with database.write() as connection:
                    tables.rewrite(connection, kind, span)
    return bool(spans)


def reduce_old(
    database: Database, tables: SampleTables, kind: Entity, *, now_ms: int, retention: Retention
) -> bool:
    """Put sketches in the place of raw samples older than the retention."""
    if retention.raw_days is None:
        return False
    age_ms = _find_age_time_ms(tables, kind, now_ms)
    cut_ms = _round_to_hour(age_ms - int(retention.raw_days * DAY_MS))
    with database.read() as connection:
        spans = list_hours_before(connection, f"{kind}_cold", cut_ms)
        imported = read_imported_spans(connection) if spans else []
    spans = leave_out_imported(spans, imported, now_ms)
    for span in spans:
        with database.write() as connection:
            reduce_span(connection, tables, kind, span)
    return bool(spans)


def drop_old(
    database: Database, tables: SampleTables, kind: Entity, *, now_ms: int, retention: Retention
) -> bool:
    """Forget sketches older than the retention."""
    if retention.sketch_days is None:
        return False
    table = f"{kind}_sketches"
    now_ms = _find_age_time_ms(tables, kind, now_ms)
    cut_ms = _round_to_hour(now_ms - int(retention.sketch_days * DAY_MS))
    with database.read() as connection:
        oldest = fetch_one_row(connection, f"SELECT min(hour_ms) FROM {table}")
    if oldest is None or oldest[0] is None or oldest[0] >= cut_ms:
        return False
    with database.write() as connection:
        connection.execute(f"DELETE FROM {table} WHERE hour_ms < ?", [cut_ms])
    return True


def _find_age_time_ms(tables: SampleTables, kind: Entity, now_ms: int) -> int:
    """Return the time by which age is measured.

    A clock that jumps ahead of the samples ages nothing.
    """
    # `reduced_before` is the end of the newest hour of sketches.
    newest_ms = max(tables.newest[kind] + HOUR_MS, tables.reduced_before[kind])
    return min(now_ms, newest_ms) if newest_ms > 0 else now_ms


def _round_to_hour(time_ms: int) -> int:
    return time_ms - time_ms % HOUR_MS
