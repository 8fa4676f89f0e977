"""What was known of a waiting job at the poll, as numbers: request, age, place, the line ahead.

Names of accounts and partitions never become features, only what they do: half of the accounts that
wait a month later are new.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marey.queue.forecast.poll_table import AHEAD, RUNNING, SHARES, Floats, Ints, PollTable

_DAY_S = 86400
# Starts older than this say nothing of the line as it is.
HISTORY_S = 7 * _DAY_S
# Totals of the whole poll number the days of a short history rather than describe a job: left out.
_POLL_TOTALS = frozenset({"r_jobs_above", "r_cores_above", "r_core_hours_above", "r_gpus_above"})


def compute_features(table: PollTable) -> tuple[Floats, tuple[str, ...]]:
    """Return a matrix of features, one row per row of the table, and their names."""
    columns: dict[str, Floats] = {}
    _add_request(columns, table)
    _add_place(columns, table)
    _add_line(columns, table)
    return np.column_stack(list(columns.values())).astype(np.float32), tuple(columns)


def group_rows(*keys: NDArray[np.generic]) -> Ints:
    """Return a number per row that is equal where all the keys are."""
    groups = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        _, codes = np.unique(key, return_inverse=True)
        _, groups = np.unique(groups * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    return groups.astype(np.int64)


def count_group(groups: Ints) -> Floats:
    """Return the size of each row's group."""
    return np.bincount(groups)[groups].astype(np.float64) if len(groups) else np.zeros(0)


def rank_in_group(groups: Ints, values: NDArray[np.generic]) -> Floats:
    """Return each row's place (from 1) among its group by value; equal values share the first of
    their places.
    """
    order = np.lexsort((values, groups))
    sorted_groups, sorted_values = groups[order], values[order]
    index = np.arange(len(order))
    new_group = np.r_[True, sorted_groups[1:] != sorted_groups[:-1]][: len(order)]
    group_start = np.maximum.accumulate(np.where(new_group, index, 0))
    new_value = new_group | np.r_[True, sorted_values[1:] != sorted_values[:-1]][: len(order)]
    value_start = np.maximum.accumulate(np.where(new_value, index, 0))
    ranks = np.empty(len(order))
    ranks[order] = value_start - group_start + 1
    return ranks


def _log(values: NDArray[np.generic]) -> Floats:
    return np.log10(1.0 + np.clip(values.astype(np.float64), 0.0, 1e12))


def _add_request(columns: dict[str, Floats], table: PollTable) -> None:
    columns["cpus"] = _log(table.cpus)
    columns["memory"] = _log(table.memory_mb)
    columns["memory_per_cpu"] = _log(table.memory_mb / np.maximum(table.cpus, 1.0))
    columns["gpus"] = table.gpus
    columns["nodes"] = _log(table.nodes)
    columns["limit"] = _log(table.limit_s)
    columns["age"] = _log(table.poll_s - table.submit_s)
    columns["eligible_age"] = np.where(
        table.ineligible, -1.0, _log(table.poll_s - table.eligible_s)
    )
    columns["ineligible"] = table.ineligible.astype(np.float64)


def _add_place(columns: dict[str, Floats], table: PollTable) -> None:
    """Add the place among all, in the partition, among the account's jobs, among those of the same
    request, in the array.
    """
    everyone = group_rows(table.poll_s)
    partition = group_rows(table.poll_s, table.partition)
    columns["priority_rank"] = rank_in_group(everyone, table.priority) / count_group(everyone)
    columns["priority_rank_partition"] = rank_in_group(partition, table.priority) / count_group(
        partition
    )
    for name, level in (("priority_to_top", np.maximum), ("priority_to_bottom", np.minimum)):
        edge = np.full(
            int(partition.max(initial=0)) + 1, -np.inf if level is np.maximum else np.inf
        )
        level.at(edge, partition, table.priority)
        columns[name] = table.priority - edge[partition]
    same = group_rows(
        table.poll_s, table.account, table.partition, table.cpus, table.limit_s, table.memory_mb
    )
    groups = {
        "partition": partition,
        "account": group_rows(table.poll_s, table.account),
        "account_partition": group_rows(table.poll_s, table.account, table.partition),
        "same_request": same,
        "array": group_rows(table.poll_s, table.account, table.submit_s),
    }
    for name, group in groups.items():
        size, rank = count_group(group), rank_in_group(group, table.job)
        columns[f"waiting_{name}"] = _log(size)
        columns[f"place_{name}"] = _log(rank)
        columns[f"part_{name}"] = rank / size


def _add_line(columns: dict[str, Floats], table: PollTable) -> None:
    """Add what is ahead and what runs, and how long the line ahead would take at the size of what
    runs.
    """
    for names, values in ((AHEAD, table.ahead), (RUNNING, table.running)):
        for i, name in enumerate(names):
            if name not in _POLL_TOTALS:
                columns[name] = _log(values[:, i])
    for i, name in enumerate(SHARES):
        columns[name] = _log(table.shares[:, i])
    for scope, at in (("all", 0), ("partition", 4), ("account", 12)):
        ahead_hours, cores = table.ahead[:, at + 2], table.running[:, at + 1]
        columns[f"drain_{scope}"] = _log(3600.0 * ahead_hours / (cores + 1.0))
    _add_drain(columns, table)
    columns["left_partition"] = _log(3600.0 * table.running[:, 6] / (table.running[:, 5] + 1.0))
    columns["ahead_to_running_partition"] = _log(table.ahead[:, 5]) - _log(table.running[:, 5])


def _add_drain(columns: dict[str, Floats], table: PollTable) -> None:
    """Add how long those of the account before it take, at as many at once as run now.

    Big arrays start in the order of their ids, a few at a time: place over running, in units of the
    limit, is what their waits follow.
    """
    running = table.running[:, 12]
    mine = group_rows(table.poll_s, table.account, table.partition)
    same = group_rows(
        table.poll_s, table.account, table.partition, table.cpus, table.limit_s, table.memory_mb
    )
    for name, group in (("account_partition", mine), ("same_request", same)):
        place = rank_in_group(group, table.job)
        columns[f"drain_{name}"] = _log(place * table.limit_s / (running + 1.0))
    columns["ahead_to_running_account"] = _log(table.ahead[:, 12]) - _log(running)
    columns["jobs_ahead_to_running"] = _log(table.ahead[:, 4]) - _log(table.running[:, 4])
    columns["left_account"] = _log(3600.0 * table.running[:, 14] / (table.running[:, 13] + 1.0))
    columns["core_seconds"] = _log(table.cpus * table.limit_s)
