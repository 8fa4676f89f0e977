"""Record a training run from inside it: the standard library and the framework, nothing else.

    from marey.record import record_torch

    with record_torch("traces/") as recorder:
        for batch in loader:
            train(batch)
            recorder.step()

Each rank writes one file with its rank, host, process groups and a clock handshake; then
``marey trace report traces/`` tells where the time went.
"""

from marey.record.jax import JaxRecorder, record_jax
from marey.record.pytorch import Schedule, TorchRecorder, record_torch

__all__ = ["JaxRecorder", "Schedule", "TorchRecorder", "record_jax", "record_torch"]
