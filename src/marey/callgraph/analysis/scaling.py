"""How call sites scale with a parameter: ranks, batch size, problem size.

For each call site the mean per value of the parameter is fitted by a power law, ``time = c · pᵇ``,
by least squares of the logarithms. The exponent is given with its 95 % interval: a call site
grows or shrinks only if the interval leaves zero out. Two values fit any line: at least three.

A parameter is ``ranks`` (how many a run has), a number of the profiles' metadata, or one that the
run's name states: ``nightly batch=32``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.callgraph.graphs import CallGraphs
from marey.callgraph.profiles import ProfileInfo
from marey.model.errors import InvalidInput, allowed, shown

FEWEST_VALUES = 3
STATED = re.compile(r"([A-Za-z][A-Za-z_]{0,40})=([0-9]{1,12}(?:\.[0-9]{1,6})?)(?![0-9A-Za-z])")


@dataclass(frozen=True)
class PowerLaw:
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
        """Return whether the call site grows, shrinks or stays, as far as the values tell."""
        if not np.isfinite(self.exponent):
            return "not enough values"
        return "grows" if self.low > 0 else "shrinks" if self.high < 0 else "no clear trend"


def parameter_values(infos: Sequence[ProfileInfo], parameter: str) -> NDArray[np.float64]:
    """Return the parameter of every profile; NaN where one does not say it."""
    facts = [_read_facts(info) for info in infos]
    values = _list_values(infos, facts, parameter)
    if np.isnan(values).all():
        known = sorted({key for one in facts for key in one})
        raise InvalidInput(
            f"No profile has a number '{shown(parameter)}'; allowed: ranks, {allowed(known)}."
        )
    return values


def _read_facts(info: ProfileInfo) -> dict[str, Any]:
    """Return a profile's facts: its metadata, and ``batch=32`` in its run's name."""
    return {**dict(STATED.findall(info.run)), **info.metadata}


def _list_values(
    infos: Sequence[ProfileInfo], facts: Sequence[Mapping[str, Any]], parameter: str
) -> NDArray[np.float64]:
    values = np.array([_number(one, parameter) for one in facts])
    if parameter != "ranks" or not np.isnan(values).all():
        return values
    ranks: dict[str, set[Any]] = {}
    for info in infos:
        ranks.setdefault(info.run, set()).add(info.rank)
    return np.array([float(len(ranks[info.run])) for info in infos])


def _number(facts: Mapping[str, Any], key: str) -> float:
    try:
        return float(facts[key])
    except (KeyError, TypeError, ValueError):
        return np.nan


def find_parameters(infos: Sequence[ProfileInfo]) -> list[str]:
    """Return the parameters that have enough different values to fit a trend, ranks first."""
    facts = [_read_facts(info) for info in infos]
    stated = sorted({key for one in facts for key in one} - {"ranks"})
    counts = {name: len(_distinct(_list_values(infos, facts, name))) for name in ("ranks", *stated)}
    return [name for name, count in counts.items() if count >= FEWEST_VALUES]


def _distinct(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.unique(values[np.isfinite(values) & (values > 0)])


def fit_scaling(
    graphs: CallGraphs, parameter: str = "ranks", word: str = "inclusive"
) -> tuple[NDArray[np.float64], list[PowerLaw]]:
    """Return the values of the parameter, and how each call site scales over them."""
    of_profile = parameter_values(graphs.infos, parameter)
    values = _distinct(of_profile)
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


def _fit(node: int, values: NDArray[np.float64], means: NDArray[np.float64]) -> PowerLaw:
    good = np.isfinite(means) & (means > 0)
    n = int(good.sum())
    if n < FEWEST_VALUES:
        nothing = float("nan")
        return PowerLaw(
            node=node, exponent=nothing, low=nothing, high=nothing, r2=nothing, means=means
        )
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
    return PowerLaw(
        node=node, exponent=slope, low=slope - reach, high=slope + reach, r2=r2, means=means
    )


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


def describe_scaling(
    graphs: CallGraphs, parameter: str | None, word: str = "inclusive", *, limit: int
) -> dict[str, Any]:
    """Return the trends over a parameter, the first that fits unless named, and which there are."""
    names = find_parameters(graphs.infos)
    chosen = parameter or (names[0] if names else None)
    if chosen is not None:
        document = scaling_document(graphs, chosen, word, limit=limit)
        return {"parameters": names, "reason": None, **document}
    return {
        "parameters": [],
        "reason": f"No parameter has {FEWEST_VALUES} different values. Choose runs of at least "
        f"{FEWEST_VALUES} sizes, or name them by it: batch=32.",
        "unit": graphs.unit,
        "parameter": None,
        "values": [],
        "left_out": 0,
        "nodes": [],
    }


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
