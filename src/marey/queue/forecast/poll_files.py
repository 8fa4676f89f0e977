"""Read a folder of poll snapshots (one CSV per poll, as published for Compute Canada's Graham and
Cedar).
"""

from __future__ import annotations

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
_NEEDED = (
    "job_unique_id",
    "poll_time",
    "submit_time",
    "time_limit_sec",
    "req_cpus",
    "poll_wait_sec",
)
_PARTITIONS = ("partition_id_y", "partition_id")
_NUMBERS = ("account_id", "req_mem_total", "priority_y", *AHEAD, *RUNNING, *SHARES)


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
    partition = next((name for name in _PARTITIONS if name in names), None)
    if missing or partition is None:
        wanted = allowed([*missing, *([] if partition else ["partition_id_y"])])
        raise InvalidInput(f"{shown(path.name)} lacks the columns {wanted} of a poll snapshot.")
    wanted_names = [*_NEEDED, *_TIMES, partition, "req_tres", *_NUMBERS]
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
        if name not in table.column_names:
            return np.zeros(table.num_rows)
        text = table[name]
        empty = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
        return np.asarray(np.nan_to_num(pc.cast(empty, pa.float64()).to_numpy(), nan=0.0))

    def moment(name: str) -> Ints:
        return _read_moments(table, name)

    poll, submit = moment("poll_time"), moment("submit_time")
    eligible = moment("eligible_time") if "eligible_time" in table.column_names else submit
    late = eligible > poll
    resources = table["req_tres"].combine_chunks() if "req_tres" in table.column_names else None
    wait = number("poll_wait_sec")
    return PollTable(
        job=number("job_unique_id").astype(np.int64),
        poll_s=poll,
        submit_s=submit,
        eligible_s=np.where(late, poll, eligible),
        ineligible=late,
        partition=number(partition).astype(np.int64),
        account=number("account_id").astype(np.int64),
        cpus=number("req_cpus"),
        memory_mb=number("req_mem_total"),
        gpus=_read_count(resources, r"gres/gpu(?::[^=,]+)?=(?P<n>\d+)", 0.0, table.num_rows),
        nodes=_read_count(resources, r"node=(?P<n>\d+)", 1.0, table.num_rows),
        limit_s=number("time_limit_sec"),
        priority=number("priority_y"),
        ahead=np.column_stack([number(name) for name in AHEAD]),
        running=np.column_stack([number(name) for name in RUNNING]),
        shares=np.column_stack([number(name) for name in SHARES]),
        wait_s=np.where(wait < 0, np.nan, wait),
    )


def _read_moments(table: pa.Table, name: str) -> Ints:
    """Return a column of ISO times as seconds UTC; what is no time counts as the poll's own."""
    text = pc.utf8_slice_codeunits(table[name], 0, 19)
    parsed = pc.strptime(text, format="%Y-%m-%d %H:%M:%S", unit="s", error_is_null=True)
    seconds = pc.cast(parsed, pa.int64())
    if name == "poll_time":
        if seconds.null_count:
            raise InvalidInput("A poll_time is not a time like 2021-05-01 12:00:00.")
        return np.asarray(seconds.to_numpy(), dtype=np.int64)
    polls = _read_moments(table, "poll_time")
    values = np.nan_to_num(pc.cast(seconds, pa.float64()).to_numpy(), nan=-1.0)
    return np.where(values < 0, polls, values).astype(np.int64)


def _read_count(text: pa.Array | None, pattern: str, default: float, rows: int) -> Floats:
    if text is None:
        return np.full(rows, default)
    found = pc.struct_field(pc.extract_regex(text, pattern), "n")
    counts = pc.cast(found, pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(np.nan_to_num(counts, nan=default))
