"""What two sets of profiles differ in: slower, faster, appeared, vanished.

Times are compared by what a call site takes itself, so that a change is named where it happened
and not once more at every caller. A change is named if Welch's unequal-variances t-test stays
below 5 % after the Benjamini-Hochberg correction for the number of call sites tested, if it is
more than 3 % of the call site's own time, and more than 0.05 % of the whole. With fewer than three
profiles on a side nothing is tested: sizes alone decide, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.callgraph.documents import ProfileDifferenceDocument, SiteChangeRecord
from marey.callgraph.graphs import CallGraphs, unite
from marey.callgraph.profiles import Profile
from marey.callgraph.trees import depths
from marey.model.errors import InvalidInput, shown
from marey.model.system.percentages import format_percent
from marey.stats.significance import (
    FEWEST_SAMPLES,
    SIGNIFICANCE,
    benjamini_hochberg,
    welch_rows,
)

SMALLEST_CHANGE = 0.03
SMALLEST_SHARE = 0.0005
# Two sides that share less of their time than this are different programs.
LEAST_SHARED = 0.1

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SiteChange:
    """One call site on both sides; ``p`` and ``q`` are None where nothing was tested."""

    node: int
    before: float | None
    after: float | None
    p: float | None
    q: float | None
    n: int
    n_before: int
    n_after: int


@dataclass(frozen=True)
class ProfileDifference:
    """Everything that two sets of profiles differ in, the largest change first."""

    graphs: CallGraphs
    slower: tuple[SiteChange, ...]
    faster: tuple[SiteChange, ...]
    appeared: tuple[SiteChange, ...]
    vanished: tuple[SiteChange, ...]
    tested: int
    total_before: float
    total_after: float
    # The share of each side's time in call sites that both have.
    shared_before: float
    shared_after: float
    n_before: int
    n_after: int

    @property
    def comparable(self) -> bool:
        """Return whether both sides are the same program as far as their call sites tell."""
        return min(self.shared_before, self.shared_after) >= LEAST_SHARED


def compare_graphs(before: CallGraphs, after: CallGraphs) -> ProfileDifference:
    """Compare two sets of profiles, each profile one sample."""
    if before.unit != after.unit:
        raise InvalidInput(
            f"Cannot compare {shown(before.unit)} with {shown(after.unit)}: "
            "both sides must measure the same thing."
        )
    joined = unite([*_profiles(before), *_profiles(after)], before.unit)
    own = joined.dense("exclusive")
    a, b = own[:, : len(before)], own[:, len(before) :]
    a_count, b_count = (~np.isnan(a)).sum(axis=1), (~np.isnan(b)).sum(axis=1)
    totals = _total(joined, slice(0, len(before))), _total(joined, slice(len(before), None))
    both = (a_count > 0) & (b_count > 0)
    shares = _share(a, both), _share(b, both)
    table = _Table(
        graphs=joined, a=a, b=b, a_count=a_count, b_count=b_count, both=both, total=max(totals)
    )
    slower, faster, tested = _times(table) if min(shares) >= LEAST_SHARED else ((), (), 0)
    return ProfileDifference(
        graphs=joined,
        slower=slower,
        faster=faster,
        appeared=_present_in_one(table, (a_count == 0) & (b_count > 0)),
        vanished=_present_in_one(table, (b_count == 0) & (a_count > 0)),
        tested=tested,
        total_before=totals[0],
        total_after=totals[1],
        shared_before=shares[0],
        shared_after=shares[1],
        n_before=len(before),
        n_after=len(after),
    )


@dataclass(frozen=True)
class _Table:
    graphs: CallGraphs
    a: Floats
    b: Floats
    a_count: NDArray[np.int64]
    b_count: NDArray[np.int64]
    both: NDArray[np.bool_]
    total: float


def _profiles(graphs: CallGraphs) -> list[Profile]:
    return [
        Profile(
            tree=graphs.tree,
            nodes=graphs.node[r],
            inclusive=graphs.inclusive[r],
            exclusive=graphs.exclusive[r],
            calls=graphs.calls[r],
            info=info,
        )
        for info, r in (
            (info, slice(graphs.first[n], graphs.first[n + 1]))
            for n, info in enumerate(graphs.infos)
        )
    ]


def _total(graphs: CallGraphs, profiles: slice) -> float:
    """Return the mean time of a profile: the sum of what its roots took."""
    roots = graphs.tree.parent[graphs.node] < 0
    sums = np.bincount(
        graphs.profile_of_rows()[roots], graphs.inclusive[roots], minlength=len(graphs)
    )
    return float(sums[profiles].mean())


def _share(rows: Floats, both: NDArray[np.bool_]) -> float:
    """Return how much of the time is in call sites that both sides have."""
    whole = float(np.nansum(rows))
    return float(np.nansum(rows[both])) / whole if whole > 0 else float(both.any())


def _means(rows: Floats, count: NDArray[np.int64]) -> Floats:
    return np.asarray(np.nansum(rows, axis=1) / count.clip(1))


def _times(table: _Table) -> tuple[tuple[SiteChange, ...], tuple[SiteChange, ...], int]:
    """Return the call sites that became slower and faster."""
    p = np.where(table.both, welch_rows(table.a, table.b), np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    q = np.full(len(p), np.nan)
    q[tested] = benjamini_hochberg(p[tested])
    before, after = _means(table.a, table.a_count), _means(table.b, table.b_count)
    delta = after - before

    few = min(table.a.shape[1], table.b.shape[1]) < FEWEST_SAMPLES
    certain = q < SIGNIFICANCE if not few else table.both
    worth = np.abs(delta) > SMALLEST_CHANGE * np.maximum(np.abs(before), np.abs(after))
    worth &= np.abs(delta) > SMALLEST_SHARE * table.total
    named = np.flatnonzero(table.both & certain & worth)
    order = named[np.argsort(-np.abs(delta[named]), kind="stable")]
    changes = [_change(table, int(n), (before, after, p, q)) for n in order]
    slower = tuple(c for c in changes if delta[c.node] > 0)
    faster = tuple(c for c in changes if delta[c.node] < 0)
    return slower, faster, len(tested)


def _change(table: _Table, node: int, columns: tuple[Floats, Floats, Floats, Floats]) -> SiteChange:
    before, after, p, q = (float(column[node]) for column in columns)
    n_before, n_after = int(table.a_count[node]), int(table.b_count[node])
    tested = p == p
    return SiteChange(
        node=node,
        before=before,
        after=after,
        p=p if tested else None,
        q=q if tested else None,
        n=min(n_before, n_after),
        n_before=n_before,
        n_after=n_after,
    )


def _present_in_one(table: _Table, chosen: NDArray[np.bool_]) -> tuple[SiteChange, ...]:
    """Return the call sites of one side alone, callers before what they call."""
    side = table.graphs.dense("inclusive")
    means = _means(side, (~np.isnan(side)).sum(axis=1))
    nodes = np.flatnonzero(chosen)
    order = nodes[np.lexsort((-means[nodes], depths(table.graphs.tree.parent)[nodes]))]
    found = []
    for node in order.tolist():
        n_before, n_after = int(table.a_count[node]), int(table.b_count[node])
        value = float(means[node])
        found.append(
            SiteChange(
                node=node,
                before=value if n_before else None,
                after=value if n_after else None,
                p=None,
                q=None,
                n=max(n_before, n_after),
                n_before=n_before,
                n_after=n_after,
            )
        )
    return tuple(found)


def difference_document(difference: ProfileDifference) -> ProfileDifferenceDocument:
    """Return the difference as plain values for JSON."""
    graphs = difference.graphs

    def list_changes(changes: Sequence[SiteChange]) -> list[SiteChangeRecord]:
        return [_change_document(graphs, change) for change in changes]

    few = min(difference.n_before, difference.n_after) < FEWEST_SAMPLES
    return {
        "unit": graphs.unit,
        "comparable": difference.comparable,
        "reason": _reason(difference),
        "test": _test(difference, few),
        "tested": difference.tested,
        "profiles": {"before": difference.n_before, "after": difference.n_after},
        "total": {"before": difference.total_before, "after": difference.total_after},
        "shared": {"before": difference.shared_before, "after": difference.shared_after},
        "slower": list_changes(difference.slower),
        "faster": list_changes(difference.faster),
        "appeared": list_changes(difference.appeared),
        "vanished": list_changes(difference.vanished),
    }


def _test(difference: ProfileDifference, few: bool) -> str:
    if not difference.comparable:
        return "not tested: the sides cannot be compared"
    if few:
        n = min(difference.n_before, difference.n_after)
        return f"not tested: n = {n} is fewer than {FEWEST_SAMPLES} profiles on a side"
    return "Welch's t-test of exclusive values, Benjamini-Hochberg corrected"


def _reason(difference: ProfileDifference) -> str | None:
    if difference.comparable:
        return None
    return (
        "These look like different programs: call sites that both have hold "
        f"{format_percent(difference.shared_before, 1)} of the time before and "
        f"{format_percent(difference.shared_after, 1)} after. "
        "Times of call sites cannot be compared; what appeared and vanished is listed."
    )


def _change_document(graphs: CallGraphs, change: SiteChange) -> SiteChangeRecord:
    return {
        "path": graphs.path(change.node),
        "before": change.before,
        "after": change.after,
        "p": change.p,
        "q": change.q,
        "n": change.n,
        "n_before": change.n_before,
        "n_after": change.n_after,
    }
