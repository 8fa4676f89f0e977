"""How a site computes priorities, from the priorities that its scheduler told.

A store keeps what the scheduler said of each waiting workload, not its weights. Priorities of the
multifactor kind are sums of an age, a share that falls with use, and what is fixed for a workload
(quality of service, partition, size). Age and share are fitted by least squares, the rest of each
workload's priority is what is left. Half-life and size of the share are tried one by one; what each
owner had used before the record began follows from how low its first priorities were.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from marey.queue.policy.policy import DAY_S, Policy
from marey.queue.policy.recorded_jobs import NOT_YET_MS, UNKNOWN_MS, Floats, Ints, RecordedJobs

_NO_PLACES = np.zeros(0, np.int64)
_HALF_LIVES_S = np.array([0.25, 0.5, 1, 2, 4, 7, 14, 30]) * DAY_S
_DAMPENINGS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0)
_MAX_AGE_S = 7 * DAY_S
_LEAST_POINTS = 30
# Less of the differences explained than this is no rule.
_LEAST_EXPLAINED = 0.8
# So many pairs of half-life and dampening are refined, each in so many rounds.
_REFINED, _ROUNDS = 4, 12
# Below this part of the share a priority says little of the use behind it.
_LEAST_FACTOR = 0.02
# Who ran before the record began stands before everybody.
RAN_BEFORE = 1e9


@dataclass(frozen=True)
class ReportedPriorities:
    """What the scheduler told of waiting jobs (by place): their priority at a moment (ms after the
    begin), and which of them a limit kept back from when on.
    """

    job: Ints = field(default_factory=lambda: _NO_PLACES)
    at_ms: Ints = field(default_factory=lambda: _NO_PLACES)
    priority: Floats = field(default_factory=lambda: np.zeros(0))
    limited: Ints = field(default_factory=lambda: _NO_PLACES)
    limited_ms: Ints = field(default_factory=lambda: _NO_PLACES)


@dataclass(frozen=True)
class FittedPriority:
    """The policy's order as it was told, what each job's own part is, the use (GPU-ms) of each
    owner before the record began, and how much of the told differences that explains.
    """

    order: Policy
    own: Floats
    first_use: Floats
    explained: float
    points: int


@dataclass(frozen=True)
class _Points:
    """The told priorities with all that the weights are fitted to."""

    job: Ints
    owner: Ints
    age: Floats
    priority: Floats
    group: Ints
    # Of each half-life: what the owner and all had used since the record began, and what is left
    # of use before it.
    own_use: Floats
    all_use: Floats
    decay: Floats
    owners: int


@dataclass(frozen=True)
class _Fit:
    error: float
    half_life: int
    dampening: float
    weights: Floats
    first_use: Floats
    rest: Floats


def fit_priority(jobs: RecordedJobs, reported: ReportedPriorities) -> FittedPriority | None:
    """Return the weights that explain the reported priorities; None where nothing explains them."""
    points = _list_points(jobs, reported)
    if len(points.job) < _LEAST_POINTS:
        return None
    spread = _center(points.priority, points.group)
    whole = float(spread @ spread)
    before = jobs.other_use.before if len(jobs.other_use.before) else np.zeros(points.owners)
    fits = [
        _fit_weights(points, half_life, dampening, before)
        for half_life in range(len(_HALF_LIVES_S))
        for dampening in _DAMPENINGS
    ]
    fits.sort(key=lambda fit: fit.error)
    best = min((_refine(points, fit, before) for fit in fits[:_REFINED]), key=lambda f: f.error)
    explained = 1.0 - best.error / whole if whole > 0 else 1.0
    if explained < _LEAST_EXPLAINED:
        return None
    order = Policy(
        order="multifactor",
        weights={
            "age": float(best.weights[0]),
            "fairshare": float(best.weights[1]),
            "recorded": 1.0,
        },
        max_age_s=_MAX_AGE_S,
        half_life_s=float(_HALF_LIVES_S[best.half_life]),
        dampening=best.dampening,
    )
    own = _spread_own_parts(jobs, points.job, best.rest)
    own = np.where(jobs.start_ms == UNKNOWN_MS, RAN_BEFORE, own)
    return FittedPriority(order, own, best.first_use, explained, len(points.job))


def _list_points(jobs: RecordedJobs, reported: ReportedPriorities) -> _Points:
    """Return the reported priorities of jobs that waited within the record."""
    kept = (jobs.start_ms[reported.job] != UNKNOWN_MS) & (
        reported.at_ms >= jobs.submit_ms[reported.job]
    )
    order = np.flatnonzero(kept)[np.argsort(reported.at_ms[kept], kind="stable")]
    job, at_ms = reported.job[order], reported.at_ms[order]
    waited_ms = at_ms - jobs.submit_ms[job] + jobs.fill("aged_ms", 0)[job]
    own_use, all_use = _trace_use(jobs, jobs.owner[job], at_ms)
    return _Points(
        job=job,
        owner=jobs.owner[job],
        age=np.minimum(1.0, waited_ms / 1000.0 / _MAX_AGE_S),
        priority=reported.priority[order],
        group=_group_alike(jobs)[job],
        own_use=own_use,
        all_use=all_use,
        decay=0.5 ** (at_ms[None, :] / 1000.0 / _HALF_LIVES_S[:, None]),
        owners=len(jobs.owners),
    )


def _trace_use(jobs: RecordedJobs, owner: Ints, at_ms: Ints) -> tuple[Floats, Floats]:
    """Return, for each half-life, decayed use of an owner and of all at ascending moments."""
    moments, who, change = _list_holds(jobs)
    use = np.zeros((len(_HALF_LIVES_S), len(jobs.owners)))
    held, at, place = np.zeros(len(jobs.owners)), 0, 0
    own_use = np.zeros((len(_HALF_LIVES_S), len(at_ms)))
    all_use = np.zeros_like(own_use)
    for k, now in enumerate(at_ms.tolist()):
        while place < len(moments) and moments[place] <= now:
            use, at = _let_pass(use, held, moments[place] - at), moments[place]
            held[who[place]] += change[place]
            place += 1
        use, at = _let_pass(use, held, now - at), now
        own_use[:, k], all_use[:, k] = use[:, owner[k]], use.sum(axis=1)
    return own_use, all_use


def _list_holds(jobs: RecordedJobs) -> tuple[list[int], list[int], list[int]]:
    """Return when which owner took or gave back how many GPUs, in order of time."""
    other, ran = jobs.other_use, jobs.start_ms != NOT_YET_MS
    begin = np.where(jobs.start_ms >= 0, jobs.start_ms, jobs.submit_ms)[ran]
    moments = np.concatenate([begin, begin + jobs.run_ms[ran], other.at_ms])
    who = np.concatenate([jobs.owner[ran], jobs.owner[ran], other.owner])
    change = np.concatenate([jobs.gpus[ran], -jobs.gpus[ran], other.gpus])
    order = np.argsort(moments, kind="stable")
    return moments[order].tolist(), who[order].tolist(), change[order].tolist()


def _let_pass(use: Floats, held: Floats, passed_ms: int) -> Floats:
    """Return the use after a while: what there was decays, what is held is added."""
    if passed_ms <= 0:
        return use
    decay = 0.5 ** (passed_ms / 1000.0 / _HALF_LIVES_S)
    return np.asarray(use * decay[:, None] + held * passed_ms)


def _fit_weights(points: _Points, half_life: int, dampening: float, first_use: Floats) -> _Fit:
    """Return the weights of age and share that explain the priorities best."""
    factor = _compute_factor(points, half_life, dampening, first_use)
    columns = np.column_stack([_center(points.age, points.group), _center(factor, points.group)])
    weights = _solve_positive(columns, _center(points.priority, points.group))
    rest = points.priority - weights[0] * points.age - weights[1] * factor
    left = _center(rest, points.group)
    return _Fit(
        float(left @ left),
        half_life,
        dampening,
        weights=weights,
        first_use=first_use,
        rest=rest,
    )


def _compute_factor(points: _Points, half_life: int, dampening: float, first_use: Floats) -> Floats:
    """Return what is left of each owner's share."""
    own = points.own_use[half_life] + first_use[points.owner] * points.decay[half_life]
    parts = own / _sum_use(points, half_life, first_use)
    return np.asarray(2.0 ** (-parts * points.owners / dampening))


def _sum_use(points: _Points, half_life: int, first_use: Floats) -> Floats:
    whole = points.all_use[half_life] + first_use.sum() * points.decay[half_life]
    return np.asarray(np.maximum(whole, 1.0))


def _refine(points: _Points, fit: _Fit, least: Floats) -> _Fit:
    """Return the fit with the use before the record that the priorities tell."""
    best = fit
    for _ in range(_ROUNDS):
        if fit.weights[1] <= 0:
            break
        first_use = _find_first_use(points, fit, least)
        fit = _fit_weights(points, fit.half_life, fit.dampening, first_use)
        if fit.error >= best.error:
            break
        best = fit
    return best


def _find_first_use(points: _Points, fit: _Fit, least: Floats) -> Floats:
    """Return each owner's use before the record, no less than what is known of it."""
    fixed = _find_medians(fit.rest, points.group)[points.group]
    factor = (points.priority - fixed - fit.weights[0] * points.age) / fit.weights[1]
    usable = (factor > _LEAST_FACTOR) & (factor < 1.0)
    factor = np.clip(factor, _LEAST_FACTOR, 1.0)
    whole, decay = _sum_use(points, fit.half_life, fit.first_use), points.decay[fit.half_life]
    part = -np.log2(factor) * fit.dampening / points.owners
    use = (part * whole - points.own_use[fit.half_life]) / decay
    # An error of the priority counts the less, the more of the share and the less of all is used.
    weight = (factor * decay / whole) ** 2 * usable
    sums = np.bincount(points.owner, weight, minlength=points.owners)
    mean = np.bincount(points.owner, weight * use, minlength=points.owners)
    known = sums > 0
    return np.where(known, np.maximum(mean / np.where(known, sums, 1.0), least), least)


def _find_medians(values: Floats, groups: Ints) -> Floats:
    """Return the median of each group; 0 where it has none."""
    found = np.zeros(int(groups.max()) + 1)
    order = np.argsort(groups, kind="stable")
    numbers, begins = np.unique(groups[order], return_index=True)
    for number, part in zip(numbers, np.split(values[order], begins[1:]), strict=True):
        found[number] = np.median(part)
    return found


def _group_alike(jobs: RecordedJobs) -> Ints:
    """Return a number for each job, the same for those whose fixed part should be equal."""
    names = {name: i for i, name in enumerate(sorted(set(jobs.partition)))}
    partition = [names[name] for name in jobs.partition] or [0] * len(jobs)
    columns = np.column_stack([partition, jobs.fill("qos", 0), jobs.gpus])
    return np.asarray(np.unique(columns, axis=0, return_inverse=True)[1], np.int64).ravel()


def _center(values: Floats, groups: Ints) -> Floats:
    """Return values less the mean of their group."""
    counts = np.maximum(1, np.bincount(groups))
    return np.asarray(values - (np.bincount(groups, values) / counts)[groups])


def _solve_positive(columns: Floats, wanted: Floats) -> Floats:
    """Return the least-squares weights of two columns, none below 0."""
    best, least = np.zeros(2), float(wanted @ wanted)
    for chosen in ([0, 1], [0], [1]):
        some = columns[:, chosen]
        weights = np.linalg.lstsq(some, wanted, rcond=None)[0]
        left = wanted - some @ weights
        if (weights >= 0).all() and float(left @ left) < least - 1e-9:
            best, least = np.zeros(2), float(left @ left)
            best[chosen] = weights
    return best


def _spread_own_parts(jobs: RecordedJobs, job: Ints, rest: Floats) -> Floats:
    """Return each job's own part of its priority; of jobs without any, the mean of those alike."""
    groups = _group_alike(jobs)
    counts = np.bincount(job, minlength=len(jobs))
    own = np.bincount(job, rest, minlength=len(jobs)) / np.maximum(counts, 1)
    known = counts > 0
    many = np.bincount(groups[known], minlength=int(groups.max()) + 1)
    mean = np.bincount(groups[known], own[known], minlength=len(many)) / np.maximum(many, 1)
    mean[many == 0] = own[known].mean()
    return np.where(known, own, mean[groups])
