"""Several workloads on one GPU: who holds which part of it, and whose activity its samples show.

The samples of a shared GPU show one workload at a time, the one that came last, as exporters that
know one job per GPU do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from marey.sim.passes.host_room import WHOLE_GPU
from marey.sim.scheduling.jobs import Job

if TYPE_CHECKING:
    from marey.sim.cluster import Cluster


def share_gpus(cluster: Cluster, job: Job, gpus: NDArray[np.int64]) -> None:
    """Note that a workload holds its part of these GPUs."""
    if job.gpu_share >= WHOLE_GPU:
        return
    cluster.gpu_left[gpus] -= job.gpu_share
    for gpu in gpus.tolist():
        cluster.sharers.setdefault(gpu, []).append(job)


def free_gpus(cluster: Cluster, job: Job) -> NDArray[np.int64]:
    """Give a workload's GPUs back; return those that nobody holds any more."""
    gpus = job.gpu_numbers
    if job.gpu_share < WHOLE_GPU:
        cluster.gpu_left[gpus] += job.gpu_share
        for gpu in gpus.tolist():
            cluster.sharers[gpu] = [one for one in cluster.sharers[gpu] if one is not job]
            ends = [(one.start_ms or 0) + one.limit_ms for one in cluster.sharers[gpu]]
            cluster.until[gpu] = max(ends, default=0)
        gpus = gpus[cluster.until[gpus] == 0]
    cluster.until[gpus] = 0
    return gpus


def hand_over(cluster: Cluster, job: Job) -> None:
    """Let shared GPUs show somebody who is still there."""
    for gpu in job.gpu_numbers.tolist() if job.gpu_share < WHOLE_GPU else ():
        left = cluster.sharers.get(gpu)
        if not left:
            cluster.sharers.pop(gpu, None)
        elif not cluster.gpu_states.is_silent(np.array([gpu])).any():
            cluster.gpu_states.retire(left[-1].regime)
            cluster.gpu_states.begin(
                np.array([gpu], np.int64), left[-1].regime, left[-1].seq, cluster.now_ms
            )
