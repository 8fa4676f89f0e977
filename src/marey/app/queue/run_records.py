"""How fast the earlier runs of a workload were: the throughput they reported, their GPUs' use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marey.app.queries.site_runs import SiteRuns
from marey.app.queue.queue_documents import RateInterval
from marey.model.protocols import Selection, Store

# What is read of the newest runs: older ones ran other code.
_NEWEST_RUNS, _LEAST_RUNS = 12, 3
EFFICIENCY_METRIC = "sm_active"


def predict_throughput(
    store: Store, cluster: str, site: SiteRuns, own: Sequence[int], *, factor: float
) -> RateInterval | None:
    """Return the throughput to expect where a run takes ``factor`` times as long; None: unknown."""
    found: list[float] = []
    unit = ""
    for run in own[-_NEWEST_RUNS:]:
        reports = store.progress(cluster, site.workloads[run], *site.get_span_ms(run))
        values = reports["throughput"].drop_null().to_numpy()
        if len(values):
            unit = next((text for text in reports["unit"].to_pylist() if text), unit)
            found.append(float(np.median(values)))
    return _spread(found, factor, unit)


def predict_efficiency(
    store: Store, cluster: str, site: SiteRuns, own: Sequence[int], *, factor: float
) -> RateInterval | None:
    """Return the mean activity of its GPUs to expect, in percent; None: no samples."""
    found: list[float] = []
    for run in own[-_NEWEST_RUNS:]:
        begin, end = site.get_span_ms(run)
        selection = Selection(
            metrics=(EFFICIENCY_METRIC,),
            from_ms=begin,
            to_ms=end,
            workload=site.workloads[run],
            cluster=cluster,
        )
        means = store.statistics(selection).table["mean"].drop_null().to_numpy()
        if len(means):
            found.append(float(means.mean()))
    return _spread(found, factor, "%")


def _spread(values: list[float], factor: float, unit: str) -> RateInterval | None:
    """Return the spread to expect of the same work in ``factor`` times the time."""
    if len(values) < _LEAST_RUNS:
        return None
    low, middle, high = (float(q) / factor for q in np.quantile(values, (0.1, 0.5, 0.9)))
    return RateInterval(p10=low, p50=middle, p90=high, unit=unit, runs=len(values))
