"""Scalars by tag → the columns of a run: which tag is the loss, the rate, the step's time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from marey.model.training.run_series import Floats, RunSeries

Points = Sequence[tuple[float, int, float]]

# Words of a tag, in order of preference; the first tag that holds one is taken.
LOSS = ("train/loss", "training/loss", "train_loss", "loss")
RATES = ("samples_per_second", "tokens_per_second", "throughput", "per_sec", "it_per_s", "/s")
SAMPLES = ("samples_seen", "consumed_samples", "num_samples", "tokens_seen", "consumed_tokens")
STEP_TIMES = ("step_time", "iteration_time", "iteration-time", "time_per_step")
MEMORY = ("memory_peak", "peak_memory", "max_memory", "memory_allocated", "memory")
_NOT_LOSS = ("scale", "valid", "eval", "test")
_SECONDS_BELOW = 1_000.0


def find_tag(tags: Iterable[str], words: Sequence[str], without: Sequence[str] = ()) -> str | None:
    """Return the tag that holds the earliest of these words; shorter tags first."""
    listed = sorted(tags, key=lambda tag: (len(tag), tag))
    for word in words:
        for tag in listed:
            low = tag.lower()
            if word in low and not any(other in low for other in without):
                return tag
    return None


def make_series(
    scalars: Mapping[str, Points],
    *,
    name: str,
    label: str = "",
    gpus: int | None = None,
    notes: Sequence[str] = (),
) -> RunSeries:
    """Return the columns of a run over the steps of its loss (or of its longest scalar)."""
    loss = find_tag(scalars, LOSS, _NOT_LOSS)
    rate = find_tag(scalars, RATES)
    base = loss or rate or max(scalars, key=lambda tag: len(scalars[tag]), default=None)
    points = scalars.get(base, ()) if base is not None else ()
    step = np.array([point[1] for point in points], float)
    memory = _values(scalars, find_tag(scalars, MEMORY))
    return RunSeries(
        name,
        label or name,
        time_ms=np.array([point[0] * 1000 for point in points]),
        step=step,
        samples=_at_steps(scalars, find_tag(scalars, SAMPLES), step),
        loss=_at_steps(scalars, loss, step),
        throughput=_at_steps(scalars, rate, step),
        unit="tokens/s" if rate and "token" in rate.lower() else "samples/s" if rate else "",
        step_ms=_milliseconds(_values(scalars, find_tag(scalars, STEP_TIMES))),
        gpus=gpus,
        peak_memory_bytes=float(np.nanmax(memory)) if len(memory) else None,
        notes=tuple(notes),
    )


def _values(scalars: Mapping[str, Points], tag: str | None) -> Floats:
    return np.array([point[2] for point in scalars.get(tag, ())] if tag else [], float)


def _at_steps(scalars: Mapping[str, Points], tag: str | None, step: Floats) -> Floats:
    """Return a scalar at each of these steps, NaN where it has none there."""
    if tag is None:
        return np.full(len(step), np.nan)
    known = {point[1]: point[2] for point in scalars[tag]}
    return np.array([known.get(int(one), np.nan) for one in step], float)


def _milliseconds(values: Floats) -> Floats:
    """Return step times in milliseconds; those below a thousand are taken for seconds."""
    if not len(values):
        return values
    return values * 1000 if float(np.nanmedian(values)) < _SECONDS_BELOW / 10 else values
