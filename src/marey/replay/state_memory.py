"""Bytes of parameters, gradients and optimizer state per parameter, by strategy.

Mixed precision with Adam keeps 20 bytes per parameter: 2 for the weight and 2 for its gradient in
half precision, and 16 for the copy, the gradient and the two moments in single precision.
"""

from __future__ import annotations

from marey.model.errors import InvalidInput

# AxoNN's accounting: weights, gradients and state of mixed-precision Adam.
DENSE_BYTES = 20
# SAMO keeps the weights dense in half precision; all else is kept for those left, with an index.
SAMO_DENSE_BYTES, SAMO_KEPT_BYTES = 2, 24
# With the state on the host a device keeps weights and gradients in half precision, and one bucket.
OFFLOADED_BYTES, BUCKET_BYTES = 4, 16


def state_bytes(parameters: float) -> float:
    """Return the bytes of a device that holds everything of these parameters."""
    return DENSE_BYTES * parameters


def pruned_state_bytes(parameters: float, sparsity: float) -> float:
    """Return the bytes under SAMO when this share of the weights is pruned."""
    if not 0 <= sparsity < 1:
        raise InvalidInput(f"A sparsity of {sparsity} is none; allowed: 0 up to, not including, 1.")
    return (SAMO_DENSE_BYTES + SAMO_KEPT_BYTES * (1 - sparsity)) * parameters


def offloaded_state_bytes(parameters: float, bucket: float) -> float:
    """Return the bytes of a device whose optimizer state is on the host, in buckets."""
    return OFFLOADED_BYTES * parameters + BUCKET_BYTES * min(bucket, parameters)


def ring_bytes(size: float, ranks: int) -> float:
    """Return the bytes that an all-reduce of this size moves over each link of a ring."""
    return 2 * (ranks - 1) / ranks * size


def pipeline_bubble(stages: int, micro_batches: int) -> float:
    """Return the share of a step in which a stage of a full pipeline has nothing to do."""
    return (stages - 1) / (micro_batches + stages - 1)
