"""Two sharded layers trained for a few steps by one of two ranks, recorded into a folder."""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, distribute_tensor

from marey.record import Schedule, record_torch


def main() -> None:
    """Train, record, end."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("shard",))
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Linear(8, 4))
    fully_shard(model, mesh=mesh)
    other = torch.nn.Linear(6, 2, bias=False)
    other.weight = torch.nn.Parameter(distribute_tensor(other.weight.data, mesh, [Replicate()]))
    with record_torch(
        sys.argv[sys.argv.index("--out") + 1], schedule=Schedule(skip=0, warmup=1, steps=2)
    ) as recorder:
        for _ in range(4):
            model(torch.randn(4, 16)).sum().backward()
            recorder.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # The gloo threads of a busy machine may outlive the interpreter's patience.
    os._exit(0)
