"""Workloads from a CSV file or a JSON array: who ran what, where and when."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marey.model.errors import InvalidInput, MareyError, allowed, shown
from marey.model.inventory import resource_type
from marey.model.names import bounded, parse_gpu_id
from marey.model.times import parse_time
from marey.model.workloads import Allocation, Workload, WorkloadState, parse_state
from marey.sources.foreign.accounting_text import is_accounting_text, read_accounting_text
from marey.sources.foreign.refusals import UNUSABLE_JOBS, refuse_known_output
from marey.sources.samples_file import BAD_ROWS_SHOWN, BadRow
from marey.sources.slurm.history import read_history
from marey.sources.slurm.jobs import SeenJob

REQUIRED = ("id", "start", "gpus")
TEXTS = ("name", "user", "project", "experiment", "partition", "qos", "reason")
TIMES = ("submit", "eligible", "start", "end")
KNOWN = {*REQUIRED, *TEXTS, *TIMES, "state", "priority", "time_limit_s", "exit_code", "attributes"}
ATTRIBUTE_PREFIX = "attributes."
GPUS_LIMIT = 200_000
FIELD_LIMIT = 16 << 20


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """A workload of the file with what the model keeps apart: state and allocation."""

    workload: Workload
    state: WorkloadState
    reason: str
    priority: float
    allocations: tuple[Allocation, ...]


@dataclass
class WorkloadsFile:
    """Everything a workloads file says, the rows it says wrongly, and the columns it has extra."""

    path: Path
    rows: list[WorkloadRow] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    bad_count: int = 0
    skipped: list[str] = field(default_factory=list)
    # Whether it is a scheduler's accounting, which tells of jobs after the fact.
    accounting: bool = False


def read_workloads(path: Path) -> WorkloadsFile:
    """Read the whole file; a row that cannot be used is reported with its line."""
    if not path.is_file():
        raise InvalidInput(f"'{path}' is not a file; a CSV file or a JSON array is needed.")
    result = WorkloadsFile(path)
    if _is_slurm_history(path):
        result.rows = make_accounting_rows(read_history(path.read_bytes(), path.name))
        result.accounting = True
        return result
    if is_accounting_text(path):
        result.rows = make_accounting_rows(read_accounting_text(path))
        result.accounting = True
        return result
    refuse_known_output(path, UNUSABLE_JOBS)
    seen: dict[str, int] = {}
    for line, row in _read_rows(path, result):
        try:
            parsed = _make_workload(row)
            if parsed.workload.workload in seen:
                before = seen[parsed.workload.workload]
                raise InvalidInput(f"id '{shown(row['id'])}' stands on line {before} already.")
            seen[parsed.workload.workload] = line
            result.rows.append(parsed)
        except MareyError as error:
            result.bad_count += 1
            if len(result.bad) < BAD_ROWS_SHOWN:
                result.bad.append(BadRow(line, str(error)))
    return result


def _is_slurm_history(path: Path) -> bool:
    """Return whether this is what ``sacct --json`` writes.

    An object with jobs and where they are from.
    """
    with path.open("rb") as file:
        head = file.read(1).strip()
        if head != b"{":
            return False
        body = head + file.read()
    return b'"jobs"' in body and b'"meta"' in body


def make_accounting_rows(ended: Iterable[SeenJob]) -> list[WorkloadRow]:
    """Return ended jobs; accounting does not keep which GPUs they held, so they hold none here."""
    # Of a job that was requeued the last run counts.
    found = {seen.workload.workload: seen for seen in ended}
    return [
        WorkloadRow(seen.workload, seen.status.state, seen.status.reason, seen.status.priority, ())
        for seen in found.values()
    ]


def _read_rows(path: Path, result: WorkloadsFile) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open("rb") as file:
        head = file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    if not head:
        raise InvalidInput(f"{path.name} is empty; allowed: a CSV file or a JSON array.")
    return _read_json_rows(path, result) if head[:1] in b"[{" else _read_csv_rows(path, result)


def _read_csv_rows(path: Path, result: WorkloadsFile) -> Iterator[tuple[int, Mapping[str, Any]]]:
    # A list of 100,000 GPUs is one field of about two megabytes.
    csv.field_size_limit(FIELD_LIMIT)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.DictReader(file, restkey="", restval=None)
        try:
            _check_columns(path, list(reader.fieldnames or []), result)
            for row in reader:
                yield reader.line_num, row
        except csv.Error as error:
            raise InvalidInput(f"{path.name}, line {reader.line_num}: {error}.") from None


def _read_json_rows(path: Path, result: WorkloadsFile) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path.name} is not JSON: {error}.") from None
    if not isinstance(document, list):
        raise InvalidInput(f"{path.name} holds a JSON object; allowed: an array of workloads.")
    names = {name for row in document if isinstance(row, dict) for name in row}
    if document:
        _check_columns(path, sorted(names), result)
    for number, row in enumerate(document, start=1):
        yield number, row if isinstance(row, dict) else {}


def _check_columns(path: Path, names: list[str], result: WorkloadsFile) -> None:
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise InvalidInput(
            f"{path.name} has no {allowed(missing)}; required: {allowed(REQUIRED)}; "
            f"also known: {allowed(sorted(KNOWN - set(REQUIRED)), 20)}."
        )
    result.skipped = [n for n in names if n not in KNOWN and not n.startswith(ATTRIBUTE_PREFIX)]


def _make_workload(row: Mapping[str, Any]) -> WorkloadRow:
    empty = [name for name in REQUIRED if _read_text(row, name) == ""]
    if empty:
        raise InvalidInput(f"{allowed(empty)} is empty; it is required.")
    times = {name: _read_time(row, name) for name in TIMES}
    start, end = times["start"], times["end"]
    if start is not None and end is not None and end < start:
        raise InvalidInput(f"end '{shown(_read_text(row, 'end'))}' is before start.")
    identity = bounded(_read_text(row, "id"))
    allocations = _make_allocations(identity, row["gpus"])
    state = _read_state(row, end)
    if state.ended and end is None:
        raise InvalidInput(f"state is '{state}' but end is empty; an ended workload has an end.")
    per_host = max(_count_per_host(allocations).values(), default=0)
    workload = Workload(
        workload=identity,
        **{name: bounded(_read_text(row, name)) for name in TEXTS if name != "reason"},
        gpus_requested=len(allocations),
        gpus_per_host=per_host,
        resource_type=resource_type("", per_host),
        time_limit_s=_read_integer(row, "time_limit_s"),
        submit_ms=times["submit"] if times["submit"] is not None else start,
        eligible_ms=times["eligible"],
        start_ms=start,
        end_ms=end,
        exit_code=_read_integer(row, "exit_code"),
        attributes=_read_attributes(row),
    )
    priority = float(_read_integer(row, "priority") or 0)
    return WorkloadRow(workload, state, bounded(_read_text(row, "reason")), priority, allocations)


def _read_text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return "" if value is None else str(value).strip()


def _read_time(row: Mapping[str, Any], name: str) -> int | None:
    text = _read_text(row, name)
    # Schedulers write these where there is no time yet.
    if text.lower() in {"", "none", "null", "unknown", "n/a"}:
        return None
    return parse_time(text)


def _read_integer(row: Mapping[str, Any], name: str) -> int | None:
    text = _read_text(row, name)
    if text == "":
        return None
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        raise InvalidInput(f"{name} is '{shown(text)}'; allowed: a whole number.") from None


def _read_state(row: Mapping[str, Any], end: int | None) -> WorkloadState:
    word = _read_text(row, "state")
    if word:
        return parse_state(word)
    return WorkloadState.RUNNING if end is None else WorkloadState.COMPLETED


def _make_allocations(workload: str, listed: Any) -> tuple[Allocation, ...]:
    names = listed if isinstance(listed, list) else str(listed).split()
    if len(names) > GPUS_LIMIT:
        raise InvalidInput(f"gpus lists {len(names)} GPUs; allowed: {GPUS_LIMIT}.")
    locals_seen: dict[str, int] = {}
    allocations: dict[str, Allocation] = {}
    for rank, name in enumerate(names):
        gpu = parse_gpu_id(str(name))
        local = locals_seen.get(gpu.host, 0)
        locals_seen[gpu.host] = local + 1
        identity = f"{bounded(gpu.host)}:{str(name).rpartition(':')[2]}"
        if identity in allocations:
            raise InvalidInput(f"gpus lists '{shown(name)}' twice.")
        allocations[identity] = Allocation(workload, identity, global_rank=rank, local_rank=local)
    return tuple(allocations.values())


def _count_per_host(allocations: tuple[Allocation, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for allocation in allocations:
        host = allocation.gpu.rpartition(":")[0]
        counts[host] = counts.get(host, 0) + 1
    return counts


def _read_attributes(row: Mapping[str, Any]) -> dict[str, str]:
    given = row.get("attributes")
    if isinstance(given, str) and given.strip():
        try:
            given = json.loads(given)
        except ValueError:
            raise InvalidInput(f"attributes is '{shown(given)}'; allowed: a JSON object.") from None
    found = dict(given) if isinstance(given, dict) else {}
    for name, value in row.items():
        if name.startswith(ATTRIBUTE_PREFIX) and value not in (None, ""):
            found[name.removeprefix(ATTRIBUTE_PREFIX)] = value
    return {bounded(str(key)): bounded(str(value)) for key, value in found.items()}
