"""What the API says of training runs side by side."""

from __future__ import annotations

from marey.model.documents import Document


class TrainingFigure(Document):
    """One figure of a group, and how it compares with the baseline's; ``said`` has the test."""

    n: int
    mean: float | None
    sd: float | None
    min: float | None
    max: float | None
    change: float | None
    p: float | None
    q: float | None
    significant: bool | None
    said: str


class TrainingGroup(Document):
    """Runs of one label: repetitions of the same thing."""

    label: str
    n: int
    gpus: int | None
    # Throughput per GPU against the group with the fewest GPUs.
    efficiency: float | None
    figures: dict[str, TrainingFigure]


class LossCurve(Document):
    """The loss against hours and samples, smoothed and thinned."""

    loss: list[float]
    hours: list[float | None]
    samples: list[float | None]


class TrainingRunFigures(Document):
    """One run; null where nothing says it."""

    name: str
    label: str
    gpus: int | None
    throughput: float | None
    step_ms: float | None
    peak_memory_bytes: float | None
    communication_share: float | None
    final_loss: float | None
    hours_to_loss: float | None
    samples_to_loss: float | None
    gpu_hours_to_loss: float | None
    hours: float | None
    notes: list[str]
    curve: LossCurve


class TrainingComparison(Document):
    """Runs and groups of runs, each group tested against the baseline."""

    baseline: str
    loss: float | None
    unit: str
    test: str
    runs: list[TrainingRunFigures]
    groups: list[TrainingGroup]
