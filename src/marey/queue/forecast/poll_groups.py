"""Groups of the rows of a poll: equal keys, sizes, places, and what holds for a whole group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.queue.forecast.poll_table import Floats, Ints, PollTable

_HOUR_S = 3600
# Limits that sites divide their partitions by: 3 h, 12 h, a day, three days, a week.
_LIMIT_CLASSES_S = np.array([3, 12, 24, 72, 168]) * _HOUR_S


@dataclass(frozen=True)
class PollGroups:
    """A number per row and kind of group, equal where rows of one poll belong together."""

    poll: Ints
    partition: Ints
    account: Ints
    account_partition: Ints
    same_request: Ints
    array: Ints
    # Limits of one class, with or without GPUs: jobs that compete for the same gaps.
    limit_class: Ints


def find_groups(table: PollTable) -> PollGroups:
    """Return the groups of a table's rows."""
    poll = group_rows(table.poll_s)
    partition, account = group_rows(table.partition), group_rows(table.account)
    mine = group_rows(poll, account)
    both = group_rows(mine, partition)
    limits = np.digitize(table.limit_s, _LIMIT_CLASSES_S) * 2 + (table.gpus > 0)
    return PollGroups(
        poll=poll,
        partition=group_rows(poll, partition),
        account=mine,
        account_partition=both,
        same_request=group_rows(both, table.cpus, table.limit_s, table.memory_mb),
        array=group_rows(mine, table.submit_s),
        limit_class=group_rows(poll, limits),
    )


def group_rows(*keys: NDArray[np.generic]) -> Ints:
    """Return a number per row that is equal where all the keys are."""
    _, groups = np.unique(keys[0], return_inverse=True)
    for key in keys[1:]:
        _, codes = np.unique(key, return_inverse=True)
        _, groups = np.unique(groups * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    return np.asarray(groups, np.int64)


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


def sum_group(groups: Ints, values: NDArray[np.generic]) -> Floats:
    """Return the sum over each row's group."""
    return np.asarray(np.bincount(groups, values)[groups]) if len(groups) else np.zeros(0)


def average_group(groups: Ints, values: NDArray[np.generic]) -> Floats:
    """Return the mean over each row's group."""
    return sum_group(groups, values) / np.maximum(count_group(groups), 1.0)


def find_range(groups: Ints, values: Floats) -> tuple[Floats, Floats]:
    """Return the lowest and the highest value of each row's group."""
    many = int(groups.max(initial=0)) + 1
    low, high = np.full(many, np.inf), np.full(many, -np.inf)
    np.minimum.at(low, groups, values)
    np.maximum.at(high, groups, values)
    return low[groups], high[groups]


def sum_before(groups: Ints, order: NDArray[np.generic], values: Floats) -> Floats:
    """Return the sum of the rows of the same group before each row."""
    rows = np.lexsort((order, groups))
    sums = np.cumsum(values[rows]) - values[rows]
    sorted_groups = groups[rows]
    first = np.r_[True, sorted_groups[1:] != sorted_groups[:-1]][: len(rows)]
    begins = np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
    out = np.empty(len(rows))
    out[rows] = sums - sums[begins]
    return out
