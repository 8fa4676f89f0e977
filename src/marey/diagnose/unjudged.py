"""What a diagnosis could not judge: the faults whose metrics are missing."""

from __future__ import annotations

from dataclasses import dataclass

from marey.diagnose.matrix import WorkloadMatrix
from marey.model.faults import FaultKind

K = FaultKind
# Per kind the sets of metrics of which one is enough; the first is the best.
NEEDS: dict[FaultKind, tuple[frozenset[str], ...]] = {
    K.STALLED: (frozenset({"util", "tensor_active", "dram_active"}), frozenset({"util", "power"})),
    K.IDLE_GPUS: (frozenset({"util"}),),
    K.IDLE_SESSION: (frozenset({"util"}),),
    K.INPUT_BOUND: (frozenset({"util"}),),
    K.BIASED_LOAD: (frozenset({"util", "mem_used"}),),
    K.THROTTLED_GPU: (frozenset({"util", "sm_clock"}),),
    K.SLOW_GPU: (frozenset({"util", "sm_active"}),),
    K.SLOW_NODE: (frozenset({"util"}),),
    K.SLOW_FABRIC: (
        frozenset({"util", "tensor_active"}),
        frozenset({"util", "mem_copy"}),
        frozenset({"util", "power"}),
    ),
    K.MEMORY_LEAK: (frozenset({"mem_used"}),),
    K.MEMORY_IMBALANCE: (frozenset({"mem_used"}),),
    K.OVERSIZED: (frozenset({"util", "mem_used"}),),
    K.UNDERUSED: (
        frozenset({"util", "sm_active", "tensor_active"}),
        frozenset({"util", "power"}),
    ),
}
# These compare GPUs or nodes with each other.
LEAST_GPUS = {K.SLOW_GPU: 4, K.BIASED_LOAD: 4, K.MEMORY_IMBALANCE: 4, K.IDLE_GPUS: 2}
LEAST_NODES = {K.SLOW_NODE: 2, K.SLOW_FABRIC: 2}


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A kind of fault that could not be looked for, and what was missing."""

    kind: FaultKind
    missing: tuple[str, ...]
    why: str = ""


def find_unjudged(matrix: WorkloadMatrix) -> tuple[Unjudged, ...]:
    """Return the kinds that these samples cannot show, each with the metrics that would."""
    present = set(matrix.columns)
    found = []
    for kind, choices in NEEDS.items():
        if not any(needed <= present for needed in choices):
            missing = tuple(sorted(choices[0] - present))
            found.append(Unjudged(kind, missing, f"needs {' and '.join(missing)}"))
        elif 0 < len(matrix.gpus) < LEAST_GPUS.get(kind, 1):
            found.append(Unjudged(kind, (), f"needs {LEAST_GPUS[kind]} GPUs to compare"))
        elif 0 < len(matrix.hosts) < LEAST_NODES.get(kind, 1):
            found.append(
                Unjudged(kind, (), "only seen if it sets in during the run: one node alone")
            )
    return tuple(found)
