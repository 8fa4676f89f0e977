"""The record of changes: appended, bounded by time, whole after a kill, readable by its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from marey.app.audit.audit_documents import AuditKind
from marey.app.audit.audit_export import write_csv, write_lines
from marey.app.audit.audit_log import REPEAT_MS, AuditEvent, AuditFilter, AuditLog
from marey.model.times import DAY_MS
from tests.waiting import until

NOW_MS = 1_794_182_400_000
CHANGE = AuditEvent(AuditKind.CHANGE, "ada", "operator", "10.0.0.1", "PUT /rules/{rule}", "rules/a")
REFUSED = AuditEvent(
    AuditKind.REFUSAL, "ben", peer="10.0.0.2", route="PUT /rules/{rule}", status=403
)


def test_entries_come_back_newest_first_and_by_page(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit")
    for at in range(5):
        log.record(CHANGE, NOW_MS + at)
    first = log.find_page(AuditFilter(), 2)
    assert [row.time_ms for row in first.rows] == [NOW_MS + 4, NOW_MS + 3]
    assert first.next is not None
    rest = log.find_page(AuditFilter(cursor=first.next), 10)
    assert [row.time_ms for row in rest.rows] == [NOW_MS + 2, NOW_MS + 1, NOW_MS]
    assert rest.next is None


def test_only_its_owner_reads_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        AuditLog(tmp_path / "audit").record(CHANGE, NOW_MS)
    finally:
        os.umask(before)
    (file,) = (tmp_path / "audit").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_days_past_the_retention_are_forgotten(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, retention_ms=3 * DAY_MS)
    for day in range(6):
        log.record(CHANGE, NOW_MS + day * DAY_MS)
    times = [entry.time_ms for entry in log.find(AuditFilter())]
    assert times == [NOW_MS + day * DAY_MS for day in (5, 4, 3, 2)]


def test_a_flood_of_refusals_is_counted_not_written(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    for at in range(1000):
        log.record(REFUSED, NOW_MS + at)
    log.record(REFUSED, NOW_MS + 1000 + REPEAT_MS)
    assert [entry.times for entry in log.find(AuditFilter())] == [1000, 1]


def test_entries_are_filtered(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.record(CHANGE, NOW_MS)
    log.record(REFUSED, NOW_MS + DAY_MS)
    chosen = [
        AuditFilter(kind="refusal"),
        AuditFilter(user="ben"),
        AuditFilter(text="10.0.0.2"),
        AuditFilter(from_ms=NOW_MS + 1),
    ]
    assert [[e.user for e in log.find(one)] for one in chosen] == [["ben"]] * 4
    assert [e.user for e in log.find(AuditFilter(to_ms=NOW_MS + 1))] == ["ada"]


def test_a_line_that_a_crash_cut_off_spoils_no_other(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.record(CHANGE, NOW_MS)
    log.close()
    (file,) = tmp_path.iterdir()
    with file.open("ab") as cut:
        cut.write(b'{"id": "17941')
    AuditLog(tmp_path).record(CHANGE, NOW_MS + 1)
    assert len(list(AuditLog(tmp_path).find(AuditFilter()))) == 2


def test_what_was_recorded_survives_a_kill(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from marey.app.audit.audit_log import *\n"
        "log = AuditLog(Path(sys.argv[1]))\n"
        "for at in range(10**9):\n"
        f"    log.record(AuditEvent(AuditKind.CHANGE, 'ada'), {NOW_MS} + at)\n"
        "    print(at, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told: list[int] = []
    until(lambda: told.append(int(process.stdout.readline())) or len(told) > 20, "some entries")
    process.send_signal(signal.SIGKILL)
    told += [int(line) for line in process.stdout.read().splitlines()]
    process.wait()
    kept = [entry.time_ms - NOW_MS for entry in AuditLog(tmp_path).find(AuditFilter())]
    assert set(told) <= set(kept)


def test_exports_are_whole_and_harmless(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    hostile = AuditEvent(AuditKind.CHANGE, "=cmd()", object="a\nb", after={"when": "x, y"})
    log.record(hostile, NOW_MS)
    table = b"".join(write_csv(log.find(AuditFilter()))).decode()
    assert "'=cmd()" in table
    assert table.startswith("time,kind,user")
    assert b'"after":{"when":"x, y"}' in b"".join(write_lines(log.find(AuditFilter())))
