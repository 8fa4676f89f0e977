"""What recording costs the run: the same real training steps with and without ``marey.record``."""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.report import Results

STEPS = 12
ROUNDS = 5
LAYERS = 16
# Width of the layers → the most a recorded step may take of a plain one. Operators of a few
# microseconds are the worst case of any profiler: the cost is per operator, not per second.
WIDTHS = {512: 1.15, 32: 3.0}
# Torch's own profiler is nearly all of the cost; what Marey adds to it must be nothing.
TARGET_ADDED = 1.1


def main() -> int:
    """Print step time recorded / not recorded, and against the bare torch profiler."""
    if importlib.util.find_spec("torch") is None:
        print("  torch is not installed: not measured")
        return 0
    import torch

    torch.set_num_threads(1)
    results = Results()
    for width, most in WIDTHS.items():
        _compare(results, torch, width, most)
    return results.missed


def _compare(results: Results, torch: Any, width: int, most: float) -> None:
    model = torch.nn.Sequential(
        *(
            torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU())
            for _ in range(LAYERS)
        )
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(256, width)

    def step() -> None:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    with tempfile.TemporaryDirectory() as folder:
        plain, bare, ours, later = [], [], [], []
        step()
        # Interleaved, so that a slow moment of the machine hits all three alike.
        for _ in range(ROUNDS):
            plain.append(_plain(step))
            bare.append(_bare(step, torch))
            recorded, after = _recorded(step, Path(folder))
            ours.append(recorded)
            later.append(after)
    each = f"{STEPS} steps of {statistics.median(plain) * 1e3:.1f} ms"
    size = f"{each}, {LAYERS} layers of {width}, {ROUNDS} rounds"
    results.against(
        "a step while it is recorded",
        ratio=statistics.median(ours) / statistics.median(plain),
        target=most,
        rival="the same step not recorded",
        size=size,
        at_10x="the same: cost per operator is constant; wider operators make it smaller",
        higher_is_better=False,
    )
    results.against(
        "a step while it is recorded",
        ratio=statistics.median(ours) / statistics.median(bare),
        target=TARGET_ADDED,
        rival="torch.profiler alone",
        size=size,
        at_10x="the same: the handshake and the file are outside the recorded steps",
        higher_is_better=False,
    )
    results.against(
        "a step inside the recorder, after the recorded ones",
        ratio=statistics.median(later) / statistics.median(plain),
        target=TARGET_ADDED,
        rival="the same step without a recorder",
        size=size,
        at_10x="the same",
        higher_is_better=False,
    )


def _plain(step: Any) -> float:
    return _median([_timed(step) for _ in range(STEPS)])


def _bare(step: Any, torch: Any) -> float:
    plan = torch.profiler.schedule(wait=1, warmup=1, active=STEPS, repeat=1)
    times = []
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=plan, record_shapes=True
    ) as profiler:
        for _ in range(STEPS + 2):
            times.append(_timed(step))
            profiler.step()
    return _median(times[2:])


def _recorded(step: Any, folder: Path) -> tuple[float, float]:
    from marey.record import Schedule, record_torch

    with record_torch(folder, schedule=Schedule(skip=1, warmup=1, steps=STEPS)) as recorder:

        def both() -> None:
            step()
            recorder.step()

        times = [_timed(both) for _ in range(5 * STEPS + 2)]
    # The last recorded step also writes the file: it is no step of anybody's training.
    return _median(times[2 : STEPS + 1]), _median(times[2 * STEPS :])


def _timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _median(values: list[float]) -> float:
    return statistics.median(values)
