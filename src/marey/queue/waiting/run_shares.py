"""Which share of their limit workloads run: by classes of limits, those that still run counted too.

Of a short history only what was short has ended yet: what still runs is a lower bound (Kaplan and
Meier 1958). Who asks for a day uses another part of it than who asks for an hour.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marey.model.tables import WorkloadRow

Floats = NDArray[np.float64]
HOUR_S = 3600
# Workloads of a limit up to each of these, and above the last, are learned from together.
CLASSES_S = (2 * HOUR_S, 12 * HOUR_S, 48 * HOUR_S)
_POINTS = np.linspace(0.025, 0.975, 20)
# Where the site's own are not known: most end early.
_GUESS = (0.02, 0.1, 0.25, 0.5, 0.8, 1.0)
GUESSED_SHARES = tuple(round(float(share), 4) for share in np.quantile(_GUESS, _POINTS))
_FEW_ENDED = 50

RunShares = tuple[tuple[float, ...], ...]
GUESSED: RunShares = (GUESSED_SHARES,) * (len(CLASSES_S) + 1)


def compute_shares(rows: Sequence[WorkloadRow], now_ms: int) -> RunShares:
    """Return quantiles of run time over limit per class; those of all where a class has few, a
    guess where all are few.
    """
    used, ended, limit_s = _list_runs(rows, now_ms)
    if ended.sum() < _FEW_ENDED:
        return GUESSED
    classes = np.digitize(limit_s, CLASSES_S, right=True)
    of_all = _find_quantiles(used, ended)
    found = []
    for number in range(len(CLASSES_S) + 1):
        mine = classes == number
        enough = ended[mine].sum() >= _FEW_ENDED
        found.append(_find_quantiles(used[mine], ended[mine]) if enough else of_all)
    return tuple(found)


def find_class(limit_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the class of each limit."""
    return np.asarray(np.digitize(limit_ms / 1000.0, CLASSES_S, right=True), np.int64)


def _list_runs(
    rows: Sequence[WorkloadRow], now_ms: int
) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Return the share of its limit that each has run by now, whether it ended, and the limit."""
    used, ended, limits = [], [], []
    for row in rows:
        start, end, limit_s = row["start_ms"], row["end_ms"], row["time_limit_s"]
        if start is None or start > now_ms or not limit_s:
            continue
        done = end is not None and end <= now_ms
        until = end if end is not None and done else now_ms
        used.append(max(0.0, (until - start) / 1000.0 / limit_s))
        ended.append(done)
        limits.append(limit_s)
    return np.array(used), np.array(ended, np.bool_), np.array(limits, np.float64)


def _find_quantiles(used: Floats, ended: NDArray[np.bool_]) -> tuple[float, ...]:
    """Return quantiles of shares of which some are lower bounds; beyond all that is known, 1."""
    order = np.lexsort((~ended, used))
    used, ended = used[order], ended[order]
    at_risk = np.arange(len(used), 0, -1)
    left = np.cumprod(np.where(ended, 1.0 - 1.0 / at_risk, 1.0))
    # A hair below, for products that round.
    places = np.searchsorted(1.0 - left, _POINTS - 1e-9)
    shares = np.append(used, 1.0)[places]
    return tuple(round(float(share), 4) for share in np.clip(shares, 0.001, 1.0))
