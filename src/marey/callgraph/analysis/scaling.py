"""How call sites scale with a parameter: ranks, batch size, problem size.

For each call site the mean per value of the parameter is fitted by a power law, ``time = c · pᵇ``,
by least squares of the logarithms. The exponent is given with its 95 % interval: a call site
grows or shrinks only if the interval leaves zero out. Two values fit any line: at least three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.callgraph.graphs import CallGraphs
from marey.callgraph.profiles import ProfileInfo
from marey.model.errors import InvalidInput, allowed, shown

FEWEST_VALUES = 3


@dataclass(frozen=True)
class Fit:
    """The power law of one call site."""

    node: int
    exponent: float
    low: float
    high: float
    r2: float
    # Mean by value of the parameter; NaN where no profile has the call site.
    means: NDArray[np.float64]

    @property
    def trend(self) -> str:
        """Say whether the call site grows, shrinks or stays, as far as the values tell."""
        if not np.isfinite(self.exponent):
            return "not enough values"
        return "grows" if self.low > 0 else "shrinks" if self.high < 0 else "no clear trend"


def parameter_values(infos: Sequence[ProfileInfo], parameter: str) -> NDArray[np.float64]:
    """Return the parameter of every profile: ``ranks`` (of its run), or a key of its metadata."""
    if parameter == "ranks":
        ranks: dict[str, set[Any]] = {}
        for info in infos:
            ranks.setdefault(info.run, set()).add(info.rank)
        return np.array([float(len(ranks[info.run])) for info in infos])
    values = [_number(info.metadata, parameter) for info in infos]
    if all(value is None for value in values):
        known = sorted({key for info in infos for key in info.metadata})
        raise InvalidInput(
            f"No profile has a number '{shown(parameter)}'; allowed: ranks, {allowed(known)}."
        )
    return np.array([np.nan if value is None else value for value in values])


def _number(metadata: Mapping[str, Any], key: str) -> float | None:
    try:
        return float(metadata[key])
    except (KeyError, TypeError, ValueError):
        return None


def fit_scaling(
    graphs: CallGraphs, parameter: str = "ranks", word: str = "inclusive"
) -> tuple[NDArray[np.float64], list[Fit]]:
    """Return the values of the parameter, and how each call site scales over them."""
    of_profile = parameter_values(graphs.infos, parameter)
    values = np.unique(of_profile[np.isfinite(of_profile) & (of_profile > 0)])
    if len(values) < FEWEST_VALUES:
        raise InvalidInput(
            f"Scaling needs {FEWEST_VALUES} different values of {shown(parameter)}; "
            f"there are {len(values)}."
        )
    group = np.searchsorted(values, of_profile)
    group = np.where(np.isin(of_profile, values), group, -1)[graphs.profile_of_rows()]
    used = group >= 0
    cell = graphs.node[used].astype(np.int64) * len(values) + group[used]
    size = len(graphs.tree) * len(values)
    count = np.bincount(cell, minlength=size)
    sums = np.bincount(cell, getattr(graphs, word)[used], minlength=size)
    means = np.where(count > 0, sums / count.clip(1), np.nan).reshape(-1, len(values))
    return values, [_fit(node, values, row) for node, row in enumerate(means)]


def _fit(node: int, values: NDArray[np.float64], means: NDArray[np.float64]) -> Fit:
    good = np.isfinite(means) & (means > 0)
    n = int(good.sum())
    if n < FEWEST_VALUES:
        nothing = float("nan")
        return Fit(node=node, exponent=nothing, low=nothing, high=nothing, r2=nothing, means=means)
    x, y = np.log(values[good]), np.log(means[good])
    away = x - x.mean()
    slope = float((away * y).sum() / (away**2).sum())
    left = y - y.mean() - slope * away
    spread = float((left**2).sum())
    whole = float(((y - y.mean()) ** 2).sum())
    # Only now: a server has no use for SciPy until somebody asks.
    from scipy.special import stdtrit

    error = np.sqrt(spread / (n - 2) / (away**2).sum())
    reach = float(stdtrit(n - 2, 0.975)) * float(error)
    r2 = 1.0 - spread / whole if whole > 0 else 1.0
    return Fit(node=node, exponent=slope, low=slope - reach, high=slope + reach, r2=r2, means=means)


def scaling_document(
    graphs: CallGraphs, parameter: str = "ranks", word: str = "inclusive", *, limit: int = 1_000
) -> dict[str, Any]:
    """Return how call sites scale as plain values, most time first."""
    values, fits = fit_scaling(graphs, parameter, word)
    fits.sort(key=lambda fit: -float(np.nanmax(fit.means, initial=0.0)))
    return {
        "unit": graphs.unit,
        "parameter": parameter,
        "values": values.tolist(),
        "left_out": max(len(fits) - limit, 0),
        "nodes": [
            {
                "path": graphs.path(fit.node),
                "trend": fit.trend,
                "exponent": _plain(fit.exponent),
                "interval": [_plain(fit.low), _plain(fit.high)],
                "r2": _plain(fit.r2),
                "means": [_plain(mean) for mean in fit.means.tolist()],
            }
            for fit in fits[:limit]
        ],
    }


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
