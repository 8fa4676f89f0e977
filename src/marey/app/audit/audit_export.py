"""The record as files: CSV for a spreadsheet, JSON lines for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

import msgspec

from marey.app.audit.audit_documents import AuditEntry
from marey.model.system.csv_cells import make_csv_cell
from marey.model.times import format_time

COLUMNS = ("time", "kind", "user", "role", "peer", "route", "object", "status", "times")
_DETAILS = ("before", "after")


def write_csv(entries: Iterable[AuditEntry]) -> Iterator[bytes]:
    """Yield lines of CSV; no cell can become a formula."""
    yield _write_line([*COLUMNS, *_DETAILS])
    for entry in entries:
        facts = [format_time(entry.time_ms), *(getattr(entry, name) for name in COLUMNS[1:])]
        details = [_write_detail(getattr(entry, name)) for name in _DETAILS]
        yield _write_line([*facts, *details])


def _write_line(cells: list[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([make_csv_cell(cell) for cell in cells])
    return text.getvalue().encode("utf-8", "replace")


def _write_detail(value: object) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def write_lines(entries: Iterable[AuditEntry]) -> Iterator[bytes]:
    """Yield an entry per line as JSON."""
    for entry in entries:
        yield msgspec.json.encode(entry) + b"\n"
