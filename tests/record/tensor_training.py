"""Two ranks of tensor parallel training under marey.record: columns, then rows, in each block."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from marey.record import Schedule, record_torch

WIDTH, INNER, BLOCKS, TOKENS = 64, 256, 3, 64


class Block(nn.Module):
    """Up and down again, with a norm that is whole on every rank."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, INNER)
        self.down = nn.Linear(INNER, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


def main() -> None:
    """Train, record, end."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tensor",))
    model = nn.Sequential(*(Block() for _ in range(BLOCKS)))
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    with record_torch(
        sys.argv[sys.argv.index("--out") + 1], schedule=Schedule(skip=0, warmup=1, steps=2)
    ) as recorder:
        for _ in range(4):
            model(torch.randn(TOKENS, WIDTH)).square().mean().backward()
            recorder.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # The gloo threads of a busy machine may outlive the interpreter's patience.
    os._exit(0)
