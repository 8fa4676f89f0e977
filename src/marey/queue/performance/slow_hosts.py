"""Hosts that are persistently slow: every run that touches them is slow, whoever runs it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from marey.queue.performance.runs import Floats, RunTable

DAY_S = 86400.0
REACH_S = 30 * DAY_S
LEAST_RUNS = 5
# A slow host makes nearly all of its runs slow; a good one shares some with a slow neighbour.
_QUANTILE = 0.25


def estimate_slowness(runs: RunTable, misses: Floats, until_s: float) -> dict[int, float]:
    """Return per host the log of how much slower its runs were than the applications' own history.

    Only runs that ended before ``until_s`` count, of the last 30 days. A gang waits for its slowest
    host, so a host is judged by the better runs it had: their lower quartile.
    """
    end_s = runs.start_s + runs.run_s
    known = (end_s <= until_s) & (end_s > until_s - REACH_S) & np.isfinite(misses)
    level = float(np.median(misses[known])) if known.any() else 0.0
    found: dict[int, list[float]] = defaultdict(list)
    for run in np.flatnonzero(known):
        for host in runs.hosts_of(int(run)):
            found[int(host)].append(float(misses[run]) - level)
    return {
        host: float(np.quantile(values, _QUANTILE))
        for host, values in found.items()
        if len(values) >= LEAST_RUNS
    }


def trace_slowness(runs: RunTable, misses: Floats) -> Floats:
    """Return the slowness of each run's slowest host as known at midnight before its start."""
    out = np.zeros(len(runs))
    days = np.floor(runs.start_s / DAY_S)
    for day in np.unique(days):
        known = estimate_slowness(runs, misses, float(day) * DAY_S)
        for run in np.flatnonzero(days == day):
            out[run] = max((known.get(int(h), 0.0) for h in runs.hosts_of(int(run))), default=0.0)
    return out


def find_slow_hosts(runs: RunTable, misses: Floats, until_s: float) -> dict[int, float]:
    """Return the hosts that stand out: by five spreads of the others, and by 5 %."""
    known = estimate_slowness(runs, misses, until_s)
    if len(known) < LEAST_RUNS:
        return {}
    values = np.array(list(known.values()))
    middle = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(values - middle)))
    limit = max(np.log(1.05), 5.0 * spread)
    return {host: value for host, value in known.items() if value - middle > limit}
