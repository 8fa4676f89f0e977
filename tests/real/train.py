"""A small data-parallel training run on CPUs with a fault of known place and kind.

Started once per rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set; writes one trace per
rank through ``marey.record``, so it also proves the recorder.
"""

from __future__ import annotations

import argparse
import gc
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from marey.record import Schedule, record_torch

FAULTS = ("none", "slow_data", "slow_backward", "host_gc")


class Samples(Dataset):
    """Random rows; a slow one sleeps in the loader, as a slow disk would."""

    def __init__(self, width: int, sleep_s: float) -> None:
        self.width, self.sleep_s = width, sleep_s

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return torch.randn(32, self.width)


class SlowBackward(torch.autograd.Function):
    """The identity, whose gradient takes real arithmetic."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor, busy_s: float) -> torch.Tensor:
        ctx.busy_s = busy_s
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        until = time.monotonic() + ctx.busy_s
        work = torch.randn(512, 512)
        while time.monotonic() < until:
            work = torch.tanh(work @ work)
        return grad, None


class Net(torch.nn.Module):
    """A few wide layers, so that a gradient is a few megabytes."""

    def __init__(self, width: int, layers: int, busy_s: float) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))
        self.busy_s = busy_s

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = torch.relu(layer(x))
            if self.busy_s and number == len(self.layers) // 2:
                x = SlowBackward.apply(x, self.busy_s)
        return x.square().mean()


def pause_of_the_collector(pause_s: float) -> None:
    """Collect garbage until the pause is over: the host does nothing else meanwhile."""
    until = time.monotonic() + pause_s
    while time.monotonic() < until:
        rubbish = [[i] for i in range(20_000)]
        rubbish.append(rubbish)
        del rubbish
        gc.collect()


def train(out: str, fault: str, slow_s: float, *, steps: int, width: int) -> None:
    """Train a few steps with one fault on this rank (if it is the slow one) and record them."""

    def here(name: str) -> float:
        return slow_s if fault == name else 0.0

    torch.manual_seed(0)
    model = DistributedDataParallel(Net(width, 6, here("slow_backward")), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = iter(DataLoader(Samples(width, here("slow_data")), batch_size=1))
    schedule = Schedule(skip=1, warmup=1, steps=steps)
    delayed_ns = run_delay_ns()
    with record_torch(out, schedule=schedule, labels={"fault": fault}) as recorder:
        for _ in range(steps + 2):
            loss = model(next(loader)[0])
            if here("host_gc"):
                pause_of_the_collector(here("host_gc"))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()
    # What the machine itself did to this rank: a healthy run is only as healthy as its machine.
    with open(f"{out}.delay-{dist.get_rank()}", "w") as told:
        told.write(str(run_delay_ns() - delayed_ns))


def run_delay_ns() -> int:
    """How long this process was ready to run while the kernel ran others; 0 if it does not say."""
    try:
        with open("/proc/self/schedstat") as numbers:
            return int(numbers.read().split()[1])
    except OSError:
        return 0


def main() -> None:
    """One run after the other, each with its fault, each into its own folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument(
        "--faults", nargs="+", default=["none"], help=f"of {', '.join(FAULTS)}; none-2 is another"
    )
    parser.add_argument("--slow-rank", type=int, default=1)
    parser.add_argument("--slow-ms", type=float, default=400.0)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    slow_s = args.slow_ms / 1e3 if dist.get_rank() == args.slow_rank else 0.0
    for name in args.faults:
        folder = os.path.join(args.out, name)
        os.makedirs(folder, exist_ok=True)
        fault = name.partition("-")[0]
        assert fault in FAULTS, fault
        train(folder, fault, slow_s, steps=args.steps, width=args.width)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # The gloo threads of a busy machine may outlive the interpreter's patience.
    os._exit(0)
