"""Read a folder of poll snapshots (one CSV per poll, as published for Compute Canada's Graham and
Cedar).
"""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from marey.model.errors import InvalidInput, NotFound, allowed, shown
from marey.queue.forecast.poll_table import (
    AHEAD,
    RUNNING,
    SHARES,
    Floats,
    Ints,
    PollTable,
    join_tables,
)

_TIMES = ("poll_time", "submit_time", "eligible_time")
_NEEDED = ("job_unique_id", "poll_time", "submit_time", "req_cpus")
# One of each of these pairs: a length in seconds, or what it is computed from.
_LIMITS, _WAITS = ("time_limit_sec", "time_limit"), ("poll_wait_sec", "start_time")
_PARTITIONS = ("partition_id_y", "partition_id")
# What sites write for a limit that is none; a year is longer than any wait that is forecast.
_NO_LIMIT, _NO_LIMIT_S = ("unlimited", "infinite", "inf", "partition_limit"), 365 * 86400.0
_SPAN = re.compile(r"(?:(\d+)(?:-| days? ))?(\d+):(\d\d)(?::(\d\d))?(?:\.\d+)?")
# Tasks of an array (41_7) come behind each other, and none is another job.
_TASKS = 1_000_000
_LARGEST, _MUCH = 2**62, 1e15
_NUMBERS = ("req_mem_total", "priority_y", *AHEAD, *RUNNING, *SHARES)


def read_polls(folder: Path) -> PollTable:
    """Return every snapshot of a folder as one table in the order of the polls."""
    files = sorted(path for path in folder.glob("*") if path.name.endswith((".csv", ".csv.gz")))
    if not files:
        raise NotFound(
            f"No poll snapshots in {shown(str(folder))}; expected *.csv or *.csv.gz, one per poll."
        )
    tables = [_read_poll_file(path) for path in files]
    return join_tables([table for table in tables if len(table)] or tables[:1])


def _read_poll_file(path: Path) -> PollTable:
    try:
        with pacsv.open_csv(path) as opened:
            names = opened.schema.names
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInput(
            f"{shown(path.name)} is not a poll snapshot in CSV: {shown(str(error))}"
        ) from error
    missing = [name for name in _NEEDED if name not in names]
    for choice in (_LIMITS, _WAITS, _PARTITIONS):
        missing += [choice[0]] if not set(choice) & set(names) else []
    if missing:
        raise InvalidInput(
            f"{shown(path.name)} lacks the columns {allowed(missing)} of a poll snapshot."
        )
    partition = next(name for name in _PARTITIONS if name in names)
    wanted_names = [*_NEEDED, *_TIMES, partition, "account_id", "req_tres", *_LIMITS, *_WAITS]
    wanted_names += _NUMBERS
    columns = [name for name in dict.fromkeys(wanted_names) if name in names]
    options = pacsv.ConvertOptions(
        include_columns=columns, column_types=dict.fromkeys(columns, pa.string())
    )
    try:
        table = pacsv.read_csv(path, convert_options=options)
        return _build_table(table, partition)
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        raise InvalidInput(f"{shown(path.name)} cannot be read: {shown(str(error))}") from error


def _build_table(table: pa.Table, partition: str) -> PollTable:
    def number(name: str) -> Floats:
        # A level of fair share is infinite where an account has used nothing.
        return np.nan_to_num(_read_numbers(table, name), nan=0.0, posinf=_MUCH, neginf=-_MUCH)

    def moment(name: str) -> Ints:
        return _read_moments(table, name)

    poll, submit = moment("poll_time"), moment("submit_time")
    eligible = moment("eligible_time") if "eligible_time" in table.column_names else submit
    late = eligible > poll
    resources = table["req_tres"].combine_chunks() if "req_tres" in table.column_names else None
    wait = _read_waits(table, poll)
    return PollTable(
        job=_read_codes(table, "job_unique_id"),
        poll_s=poll,
        # Clocks differ: nobody waits at a poll who was submitted after it.
        submit_s=np.minimum(submit, poll),
        eligible_s=np.where(late, poll, eligible),
        ineligible=late,
        partition=_read_codes(table, partition),
        account=_read_codes(table, "account_id"),
        cpus=number("req_cpus"),
        memory_mb=number("req_mem_total"),
        gpus=_read_count(resources, r"gres/gpu(?::[^=,]+)?=(?P<n>\d+)", 0.0, table.num_rows),
        nodes=_read_count(resources, r"node=(?P<n>\d+)", 1.0, table.num_rows),
        limit_s=_read_limits(table),
        priority=number("priority_y"),
        ahead=np.column_stack([number(name) for name in AHEAD]),
        running=np.column_stack([number(name) for name in RUNNING]),
        shares=np.column_stack([number(name) for name in SHARES]),
        wait_s=np.where(wait < 0, np.nan, wait),
    )


def _read_numbers(table: pa.Table, name: str) -> Floats:
    """Return a column of numbers, NaN where it is empty; zeros where there is no such column."""
    if name not in table.column_names:
        return np.zeros(table.num_rows)
    text = pc.utf8_trim_whitespace(table[name])
    empty = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    try:
        return np.asarray(pc.cast(empty, pa.float64()).to_numpy())
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"Column {name} is not of numbers: {shown(str(error))}") from error


def _read_codes(table: pa.Table, name: str) -> Ints:
    """Return a column of names as numbers: the number it is, or one made of the text."""
    if name not in table.column_names:
        return np.zeros(table.num_rows, np.int64)
    coded = table[name].combine_chunks().dictionary_encode()
    codes = np.array([_number_name(text or "") for text in coded.dictionary.to_pylist()], np.int64)
    places = coded.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False)
    return np.asarray(np.append(codes, 0)[places], np.int64)


def _number_name(text: str) -> int:
    plain = text.strip().removesuffix(".0")
    number, _, task = plain.partition("_")
    if plain.isdecimal() and int(plain) < _LARGEST:
        return int(plain)
    if number.isdecimal() and task.isdecimal() and int(number) < _LARGEST // _TASKS:
        return int(number) * _TASKS + int(task) % _TASKS
    return int.from_bytes(blake2b(plain.encode(), digest_size=7).digest()) if plain else 0


def _read_limits(table: pa.Table) -> Floats:
    """Return time limits in seconds, a year where there is none; 0 where nothing is said."""
    name = next(name for name in _LIMITS if name in table.column_names)
    coded = table[name].combine_chunks().dictionary_encode()
    known = [_parse_limit(name, text or "") for text in coded.dictionary.to_pylist()]
    places = coded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    limits = np.append(np.array(known, np.float64), 0.0)[places]
    return np.asarray(np.minimum(limits, _NO_LIMIT_S))


def _parse_limit(name: str, text: str) -> float:
    plain = text.strip().lower()
    if plain in _NO_LIMIT:
        return _NO_LIMIT_S
    if plain in ("", "nan"):
        return 0.0
    if found := _SPAN.fullmatch(plain):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return days * 86400.0 + hours * 3600.0 + minutes * 60.0 + seconds
    try:
        return max(0.0, float(plain))
    except ValueError as error:
        raise InvalidInput(
            f"{name} is '{shown(text)}'; seconds, 7-00:00:00 or UNLIMITED are allowed."
        ) from error


def _read_waits(table: pa.Table, poll: Ints) -> Floats:
    """Return how long each still waited, NaN where that is not known (yet)."""
    if _WAITS[0] in table.column_names:
        return _read_numbers(table, _WAITS[0])
    return _read_seconds(table, _WAITS[1]) - poll


def _read_moments(table: pa.Table, name: str) -> Ints:
    """Return a column of ISO times as seconds UTC; what is no time counts as the poll's own."""
    seconds = _read_seconds(table, name)
    if name == "poll_time":
        if np.isnan(seconds).any():
            raise InvalidInput("A poll_time is not a time like 2021-05-01 12:00:00.")
        return seconds.astype(np.int64)
    return np.where(np.isnan(seconds), _read_seconds(table, "poll_time"), seconds).astype(np.int64)


def _read_seconds(table: pa.Table, name: str) -> Floats:
    text = pc.replace_substring(pc.utf8_slice_codeunits(table[name], 0, 19), "T", " ")
    parsed = pc.strptime(text, format="%Y-%m-%d %H:%M:%S", unit="s", error_is_null=True)
    return np.asarray(pc.cast(pc.cast(parsed, pa.int64()), pa.float64()).to_numpy())


def _read_count(text: pa.Array | None, pattern: str, default: float, rows: int) -> Floats:
    if text is None:
        return np.full(rows, default)
    found = pc.struct_field(pc.extract_regex(text, pattern), "n")
    counts = pc.cast(found, pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(np.nan_to_num(counts, nan=default))
