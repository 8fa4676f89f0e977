"""What was known of a waiting job at the poll, as numbers: request, age, place, the line ahead.

Names of accounts and partitions never become features, only what they do: half of the accounts that
wait a month later are new.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marey.queue.forecast.poll_groups import (
    PollGroups,
    average_group,
    count_group,
    find_groups,
    find_range,
    rank_in_group,
    sum_before,
    sum_group,
)
from marey.queue.forecast.poll_table import AHEAD, RUNNING, SHARES, Floats, PollTable

_DAY_S = 86400
# Starts older than this say nothing of the line as it is.
HISTORY_S = 7 * _DAY_S
# Totals of the whole poll number the days of a short history rather than describe a job: left out.
_POLL_TOTALS = frozenset({"r_jobs_above", "r_cores_above", "r_core_hours_above", "r_gpus_above"})


def compute_features(table: PollTable) -> tuple[Floats, tuple[str, ...]]:
    """Return a matrix of features, one row per row of the table, and their names."""
    columns: dict[str, Floats] = {}
    groups = find_groups(table)
    _add_request(columns, table)
    _add_place(columns, table, groups)
    _add_line(columns, table)
    _add_drain(columns, table, groups)
    _add_turnover(columns, table, groups)
    _add_work_before(columns, table, groups)
    return np.column_stack(list(columns.values())).astype(np.float32), tuple(columns)


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


def _add_place(columns: dict[str, Floats], table: PollTable, groups: PollGroups) -> None:
    """Add the place among all, in the partition, among the account's jobs, among those of the same
    request, in the array.
    """
    partition = groups.partition
    columns["priority_rank"] = rank_in_group(groups.poll, table.priority) / count_group(groups.poll)
    columns["priority_rank_partition"] = rank_in_group(partition, table.priority) / count_group(
        partition
    )
    bottom, top = find_range(partition, table.priority)
    columns["priority_to_top"] = table.priority - top
    columns["priority_to_bottom"] = table.priority - bottom
    for name, group in (
        ("partition", partition),
        ("account", groups.account),
        ("account_partition", groups.account_partition),
        ("same_request", groups.same_request),
        ("array", groups.array),
    ):
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
    columns["left_partition"] = _log(3600.0 * table.running[:, 6] / (table.running[:, 5] + 1.0))
    columns["ahead_to_running_partition"] = _log(table.ahead[:, 5]) - _log(table.running[:, 5])


def _add_drain(columns: dict[str, Floats], table: PollTable, groups: PollGroups) -> None:
    """Add how long those of the account before it take, at as many at once as run now.

    Big arrays start in the order of their ids, a few at a time: place over running, in units of the
    limit, is what their waits follow.
    """
    running = table.running[:, 12]
    for name, group in (
        ("account_partition", groups.account_partition),
        ("same_request", groups.same_request),
    ):
        place = rank_in_group(group, table.job)
        columns[f"drain_{name}"] = _log(place * table.limit_s / (running + 1.0))
    columns["ahead_to_running_account"] = _log(table.ahead[:, 12]) - _log(running)
    columns["jobs_ahead_to_running"] = _log(table.ahead[:, 4]) - _log(table.running[:, 4])
    columns["left_account"] = _log(3600.0 * table.running[:, 14] / (table.running[:, 13] + 1.0))
    columns["core_seconds"] = _log(table.cpus * table.limit_s)


def _add_turnover(columns: dict[str, Floats], table: PollTable, groups: PollGroups) -> None:
    """Add how long the others of a job's groups have waited, and how many came lately.

    Where nobody of a partition has waited for more than an hour, nobody waits long there.
    """
    age_s = (table.poll_s - table.submit_s).astype(np.float64)
    age = _log(age_s)
    for name, group in (
        ("partition", groups.partition),
        ("account", groups.account),
        ("account_partition", groups.account_partition),
        ("same_request", groups.same_request),
        ("limit_class", groups.limit_class),
    ):
        columns[f"youngest_{name}"], columns[f"oldest_{name}"] = find_range(group, age)
        columns[f"mean_age_{name}"] = average_group(group, age)
        columns[f"came_1h_{name}"] = _log(sum_group(group, age_s <= 3600))
        columns[f"came_1d_{name}"] = _log(sum_group(group, age_s <= _DAY_S))
        columns[f"older_1d_{name}"] = average_group(group, age_s > _DAY_S)


def _add_work_before(columns: dict[str, Floats], table: PollTable, groups: PollGroups) -> None:
    """Add the work that stands before a job, and what the line of its partition is made of."""
    work, partition = table.cpus * table.limit_s, groups.partition
    columns["work_before_account"] = _log(sum_before(groups.account, table.job, work))
    columns["work_before_mine"] = _log(sum_before(groups.account_partition, table.job, work))
    columns["work_before_partition"] = _log(sum_before(partition, -table.priority, work))
    columns["cpus_before_partition"] = _log(sum_before(partition, -table.priority, table.cpus))
    columns["work_partition"] = _log(sum_group(partition, work))
    mine = count_group(groups.account_partition)
    columns["accounts_partition"] = _log(sum_group(partition, 1.0 / np.maximum(mine, 1.0)))
    columns["mine_of_partition"] = mine / np.maximum(count_group(partition), 1.0)
    columns["mean_limit_partition"] = average_group(partition, columns["limit"])
    columns["limit_to_mean"] = columns["limit"] - columns["mean_limit_partition"]
    _, best = find_range(groups.account, table.priority)
    columns["account_rank"] = _log(rank_in_group(groups.poll, -best))
    cores = table.running[:, 1] + 1.0
    columns["account_of_running"] = table.running[:, 9] / cores
    columns["partition_of_running"] = table.running[:, 5] / cores
    columns["mine_of_running"] = table.running[:, 13] / (table.running[:, 5] + 1.0)
