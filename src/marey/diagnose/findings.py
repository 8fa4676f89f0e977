"""What a diagnosis says: findings with their evidence, confidence and next step."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.matrix import WorkloadMatrix
from marey.model.faults import FaultKind
from marey.model.times import HOUR_MS


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number and what it is compared with (NaN where it speaks for itself).

    Without a number it is a sentence of its own.
    """

    what: str
    value: float = float("nan")
    against: float = float("nan")
    unit: str = ""
    # What it is compared with: a limit, earlier, other GPUs, what is usual, or all there is.
    reference: Literal["limit", "before", "others", "usual", "capacity"] = "limit"

    def __str__(self) -> str:
        if isnan(self.value):
            return self.what
        unit = f" {self.unit}" if self.unit else ""
        against = "" if isnan(self.against) else f" ({self.reference} {self.against:.4g}{unit})"
        return f"{self.what}: {self.value:.4g}{unit}{against}"


@dataclass(frozen=True, slots=True)
class FaultFinding:
    """One thing that is wrong, on exactly these GPUs, in this window."""

    kind: FaultKind
    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    from_ms: int
    to_ms: int
    summary: str
    evidence: tuple[Evidence, ...]
    confidence: float
    next: str
    # GPU-hours of the whole workload that this costs or puts at risk.
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class Claim:
    """What a judge claims, before it is turned into a finding."""

    kind: FaultKind
    rows: NDArray[np.bool_]
    # First and last column of the window, half-open.
    span: tuple[int, int]
    summary: str
    evidence: tuple[Evidence, ...]
    confidence: float
    # Share of the workload's GPU time in the window that is lost.
    lost: float
    next: str


def to_finding(matrix: WorkloadMatrix, claim: Claim) -> FaultFinding:
    """Return the claim with names and times instead of rows and columns."""
    members = [gpu for gpu, kept in zip(matrix.gpus, claim.rows, strict=True) if kept]
    first, last = claim.span
    from_ms = int(matrix.time_ms[first])
    to_ms = int(matrix.time_ms[last - 1]) + matrix.step_ms
    hours = (to_ms - from_ms) / HOUR_MS * len(matrix.gpus)
    return FaultFinding(
        kind=claim.kind,
        gpus=tuple(gpu.gpu for gpu in members),
        hosts=tuple(sorted({gpu.host for gpu in members})),
        from_ms=from_ms,
        to_ms=to_ms,
        summary=claim.summary,
        evidence=claim.evidence,
        confidence=round(float(claim.confidence), 2),
        next=claim.next,
        gpu_hours=round(hours * float(claim.lost), 2),
    )
