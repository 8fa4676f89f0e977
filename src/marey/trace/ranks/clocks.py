"""Clocks of different hosts brought to one time by the ends of the collectives they shared.

A collective ends on all its ranks at nearly the same moment. Within each group every rank's ends
are compared with the group's mean; the median over many collectives and a robust slope give an
offset and a drift relative to the group. Groups share ranks, so a small least-squares problem joins
them into one clock for the run. A constant shift of one rank's clock moves its offset by exactly
that much, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marey.trace.rank.activity import Ints
from marey.trace.ranks.communications import Pool
from marey.trace.results import Clocks

Floats = NDArray[np.float64]

# A drift is only fitted where collectives span this long: below, jitter of ends would look like it.
SHORTEST_DRIFT_SPAN_NS = 20e6
FEWEST_FOR_DRIFT = 8
# Crystals are specified to some tens of ppm; a steeper slope is not a clock.
LARGEST_DRIFT = 500e-6
# A slope must stand out of the scatter of slopes by this many of its own errors.
DRIFT_DEVIATIONS = 4.0
# The median absolute deviation of a normal distribution is this much below its deviation.
MAD_TO_DEVIATION = 1.4826
# Claims are made beyond three deviations of the ends.
ERROR_DEVIATIONS = 3.0
# Offsets of ranks of one host that differ by no more than this many deviations are one offset.
SHARED_DEVIATIONS = 4.0
# Ends that scatter by more than this are no measure of a clock: gloo logs them late.
LOOSE_ENDS_NS = 100_000.0
# The same kernel's clock read by two processes: what reading it costs, not what it is off.
SAME_CLOCK_ERROR_US = 1.0


@dataclass(frozen=True)
class _Relation:
    """A rank's clock against the mean of one set of ranks that met."""

    rank: int
    group: int
    value: float
    weight: float


def align_pool(pool: Pool, item: Ints, hosts: Mapping[int, str]) -> Clocks:
    """Return the clocks of every rank, fitted to the matched items."""
    ranks = np.array(pool.ranks, np.int64)
    origin = int(pool.start_ns.min()) if len(pool) else 0
    rows = np.flatnonzero(item >= 0)
    end = (pool.end_ns[rows] - origin).astype(np.float64)
    at = np.searchsorted(ranks, pool.rank[rows])
    if not len(rows):
        return _clocks(
            pool,
            hosts=hosts,
            offset=np.zeros(len(ranks)),
            drift=np.zeros(len(ranks)),
            residual=None,
            origin=origin,
        )
    team = _number_rank_sets(item[rows], at)
    drift = _drifts(pool, hosts=hosts, end=end, item=item[rows], at=at, team=team)
    steady = end * (1 - drift[at])
    away, _ = _from_mean(steady, item[rows])
    relations = [
        _Relation(rank, group, float(np.median(away[chosen])), float(np.sqrt(len(chosen))))
        for rank, group, chosen in _by_rank_and_team(end, at, team)
    ]
    own = _solve(relations, len(ranks))
    scatter = _residuals(end - own[at] - drift[at] * end, item[rows], at, len(ranks))
    offset = _share_offsets(own, scatter, [hosts.get(rank, "") for rank in pool.ranks])
    corrected = end - offset[at] - drift[at] * end
    residual = _residuals(corrected, item[rows], at, len(ranks))
    found = _clocks(pool, hosts=hosts, offset=offset, drift=drift, residual=residual, origin=origin)
    one_clock = len(set(found.hosts)) == 1 and found.hosts[0] and len(set(found.offset_us)) == 1
    # Ends of a collective scatter by far more than reading one and the same clock does.
    return replace(found, error_us=SAME_CLOCK_ERROR_US) if one_clock else found


def _share_offsets(own: Floats, scatter: Floats, hosts: list[str]) -> Floats:
    """Give the ranks of one host, which read one clock, the median of their offsets.

    Only where ends are logged so loosely that a fit of each rank says more about the logging than
    about its clock. A rank whose ends lie further from the median than they scatter has a clock of
    its own (a container with the host's name) and keeps its own offset.
    """
    offset = own.copy()
    names = np.array([name or f"rank {place}" for place, name in enumerate(hosts)])
    for name in np.unique(names):
        mine = np.flatnonzero(names == name)
        middle = float(np.median(own[mine]))
        if float(np.median(scatter[mine])) < LOOSE_ENDS_NS:
            continue
        near = np.abs(own[mine] - middle) <= SHARED_DEVIATIONS * scatter[mine]
        offset[mine[near]] = middle
    return offset


def _number_rank_sets(item: Ints, at: Ints) -> Ints:
    """Return for each row the set of ranks that met in its item: the same ranks give the same
    number.
    """
    # Two random 62-bit sums over the members tell sets of ranks apart.
    rng = np.random.default_rng(7)
    code = rng.integers(1, 2**62, int(at.max()) + 1, dtype=np.int64)
    total = np.zeros(int(item.max()) + 1, np.int64)
    np.add.at(total, item, code[at])
    return np.unique(total[item], return_inverse=True)[1].reshape(-1)


def _from_mean(end: Floats, item: Ints) -> tuple[Floats, Floats]:
    size = np.maximum(np.bincount(item), 1)
    mean = (np.bincount(item, weights=end) / size)[item]
    return end - mean, mean


def _by_rank_and_team(time: Floats, at: Ints, team: Ints) -> Iterator[tuple[int, int, Ints]]:
    """Yield the rows of each rank in each team, in order of time."""
    order = np.lexsort((time, at, team))
    key = np.stack([team[order], at[order]])
    cuts = np.flatnonzero((np.diff(key, axis=1) != 0).any(axis=0)) + 1
    for rows in np.split(order, cuts):
        yield int(at[rows[0]]), int(team[rows[0]]), rows


def _drifts(
    pool: Pool, *, hosts: Mapping[int, str], end: Floats, item: Ints, at: Ints, team: Ints
) -> Floats:
    """Return the drift of each rank's clock; ranks of one host share theirs."""
    away, mean = _from_mean(end, item)
    relations = [
        _Relation(rank, group, robust_slope(mean[rows], away[rows]), float(np.sqrt(len(rows))))
        for rank, group, rows in _by_rank_and_team(mean, at, team)
    ]
    drift = _solve(relations, len(pool.ranks))
    names = np.array([hosts.get(rank) or f"rank {rank}" for rank in pool.ranks])
    for name in np.unique(names):
        drift[names == name] = np.median(drift[names == name])
    return drift - np.median(drift)


def robust_slope(time: Floats, value: Floats) -> float:
    """Return the median slope of pairs half the range apart (Theil-Sen thinned), if it is beyond
    noise.
    """
    count = len(time)
    if count < FEWEST_FOR_DRIFT or time[-1] - time[0] < SHORTEST_DRIFT_SPAN_NS:
        return 0.0
    half = count // 2
    run = time[count - half :] - time[:half]
    rise = value[count - half :] - value[:half]
    slopes = rise[run > 0] / run[run > 0]
    if not len(slopes):
        return 0.0
    slope = float(np.median(slopes))
    noise = float(np.median(np.abs(slopes - slope))) * MAD_TO_DEVIATION / np.sqrt(len(slopes))
    beyond = abs(slope) > DRIFT_DEVIATIONS * noise
    return slope if beyond and abs(slope) <= LARGEST_DRIFT else 0.0


def _solve(relations: list[_Relation], ranks: int) -> Floats:
    """Return values of the ranks that agree best with all relations; the smallest such solution."""
    # Only now: a server has no use for SciPy until somebody asks.
    from scipy.sparse import coo_matrix
    from scipy.sparse.linalg import lsqr

    teams = max(r.group for r in relations) + 1
    count = len(relations)
    rows = np.repeat(np.arange(count), 2)
    columns = np.array([[r.rank, ranks + r.group] for r in relations]).reshape(-1)
    weight = np.array([r.weight for r in relations])
    signs = np.stack([weight, -weight], axis=1).reshape(-1)
    system = coo_matrix((signs, (rows, columns)), shape=(count, ranks + teams)).tocsr()
    side = weight * np.array([r.value for r in relations])
    fit = lsqr(system, side, atol=1e-14, btol=1e-14, iter_lim=4 * (ranks + teams))[0]
    values: Floats = fit[:ranks]
    return values


def _residuals(corrected: Floats, item: Ints, at: Ints, ranks: int) -> Floats:
    away, _ = _from_mean(corrected, item)
    residual = np.zeros(ranks)
    order = np.argsort(at, kind="stable")
    cuts = np.searchsorted(at[order], np.arange(ranks + 1))
    for rank in range(ranks):
        mine = np.abs(away[order[cuts[rank] : cuts[rank + 1]]])
        residual[rank] = np.median(mine) * MAD_TO_DEVIATION if len(mine) else 0.0
    return residual


def _clocks(
    pool: Pool,
    *,
    hosts: Mapping[int, str],
    offset: Floats,
    drift: Floats,
    residual: Floats | None,
    origin: int,
) -> Clocks:
    error = float(np.median(residual)) * ERROR_DEVIATIONS if residual is not None else 0.0
    spread = residual if residual is not None else np.zeros(len(offset))
    return Clocks(
        ranks=pool.ranks,
        hosts=tuple(hosts.get(rank, "") for rank in pool.ranks),
        offset_us=tuple((offset / 1e3).tolist()),
        drift_ppm=tuple((drift * 1e6).tolist()),
        residual_us=tuple((spread / 1e3).tolist()),
        origin_ns=origin,
        error_us=error / 1e3,
    )


def aligned(clocks: Clocks, rank: int, times_ns: Ints) -> Ints:
    """Return times of a rank on the run's clock."""
    at = clocks.ranks.index(rank)
    return apply_clock(times_ns, clocks.offset_us[at], clocks.drift_ppm[at], clocks.origin_ns)


def apply_clock(
    times_ns: Ints, offset_us: float | Floats, drift_ppm: float | Floats, origin_ns: int
) -> Ints:
    """Return recorded times less the offset, and less the drift since the origin."""
    since = (times_ns - origin_ns).astype(np.float64)
    moved: Ints = times_ns - np.rint(offset_us * 1e3 + drift_ppm * 1e-6 * since).astype(np.int64)
    return moved
