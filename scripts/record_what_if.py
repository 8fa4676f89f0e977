#!/usr/bin/env python3
"""Record pairs of small training runs, to score what-if predictions on other models and links.

    sudo .venv/bin/python scripts/record_what_if.py OUT [--suite small] [--only ddp-] [--passes 2]

A suite is one of what_if_suites.json, or a file with the same keys. Every rank is a process in its
own network namespace, whose link to the others is shaped (needs root, ip and tc). Compute is a
sleep that grows with the samples, so that two cores are enough for four ranks; what is real is
torch, gloo and the network. OUT gets one folder of traces per run and truth.json, as `marey what-if
--pairs OUT` takes them. Ranks take real-time priority while they train, so that a busy machine
disturbs them little; two passes say how much it did.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RANKS = 4
MOST_RANKS = 16
WARMUP, PLAIN, RECORDED = 3, 9, 5
SUITES = Path(__file__).resolve().parent / "what_if_suites.json"


# --- the network -------------------------------------------------------------------------------


def call(*words: object, check: bool = True) -> None:
    """Run a command of the system."""
    subprocess.run([str(w) for w in words], check=check, capture_output=True)


class Network:
    """Namespaces behind one bridge, each with a shaped link in both directions."""

    def __init__(self, name: str, ranks: int) -> None:
        self.name, self.ranks = name, ranks

    def __enter__(self) -> Network:
        bridge = f"{self.name}br"
        call("ip", "link", "add", bridge, "type", "bridge")
        call("ip", "link", "set", bridge, "up")
        for rank in range(self.ranks):
            space, outer, inner = f"{self.name}{rank}", f"{self.name}o{rank}", f"{self.name}i{rank}"
            call("ip", "netns", "add", space)
            call("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
            call("ip", "link", "set", inner, "netns", space)
            call("ip", "link", "set", outer, "master", bridge)
            call("ip", "link", "set", outer, "up")
            inside = ("ip", "netns", "exec", space)
            call(*inside, "ip", "addr", "add", f"10.77.0.{rank + 1}/24", "dev", inner)
            call(*inside, "ip", "link", "set", inner, "up")
            call(*inside, "ip", "link", "set", "lo", "up")
            # Others, as bbr, stall short bursts now and then, which is no property of the run.
            congestion = "net.ipv4.tcp_congestion_control=cubic"
            call(*inside, "sysctl", "-w", congestion, check=False)
        return self

    def shape(self, rank: int, mbit: float) -> None:
        """Give a rank's link this many megabits per second, up and down."""
        for prefix, device in (
            (("ip", "netns", "exec", f"{self.name}{rank}"), f"{self.name}i{rank}"),
            ((), f"{self.name}o{rank}"),
        ):
            call(*prefix, "tc", "qdisc", "del", "dev", device, "root", check=False)
            limit = ("rate", f"{mbit}mbit", "burst", "64kb", "latency", "300ms")
            call(*prefix, "tc", "qdisc", "add", "dev", device, "root", "tbf", *limit)

    def __exit__(self, *_: object) -> None:
        for rank in range(self.ranks):
            call("ip", "netns", "del", f"{self.name}{rank}", check=False)
        call("ip", "link", "del", f"{self.name}br", check=False)


# --- one run -----------------------------------------------------------------------------------


def record_run(network: Network, setting: dict[str, Any], folder: Path) -> list[float]:
    """Run and record one setting, and return its plain steps in ms."""
    ranks = setting.get("ranks", RANKS)
    for rank in range(ranks):
        links = setting.get("links", {})
        network.shape(rank, links.get(str(rank), setting.get("mbit", 200)))
    folder.mkdir(parents=True, exist_ok=True)
    processes = []
    for rank in range(ranks):
        env = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "10.77.0.1",
            "MASTER_PORT": str(29500 + os.getpid() % 1000),
            "GLOO_SOCKET_IFNAME": f"{network.name}i{rank}",
            "OMP_NUM_THREADS": "1",
        }
        command = ["ip", "netns", "exec", f"{network.name}{rank}", sys.executable, __file__]
        command += ["--worker", json.dumps(setting), str(folder)]
        processes.append(subprocess.Popen(command, env=env))
    codes = [p.wait(timeout=300) for p in processes]
    if any(codes):
        raise RuntimeError(f"A rank of {folder.name} failed: {codes}")
    times = [json.loads((folder / f"plain{r}.json").read_text()) for r in range(ranks)]
    for rank in range(ranks):
        (folder / f"plain{rank}.json").unlink()
    # Ranks that wait for each other take turns in being late; over all of them that evens out.
    return [statistics.median(step) for step in zip(*times, strict=True)]


def run_worker(setting: dict[str, Any], folder: Path) -> None:
    """Train as one rank: plain steps first, then the recorded ones."""
    import torch
    import torch.distributed as dist

    from marey.record import Schedule, record_torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    # Steps are timed as on an idle machine, whatever else runs; starting up is not. Threads made
    # from now on inherit it.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    step = MAKERS[setting["kind"]](setting, rank)
    times = []
    for _ in range(WARMUP + PLAIN):
        begin = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - begin))
    (folder / f"plain{rank}.json").write_text(json.dumps(times[WARMUP:]))
    schedule = Schedule(skip=0, warmup=2, steps=RECORDED)
    with record_torch(
        str(folder), schedule=schedule, memory=bool(setting.get("memory"))
    ) as recorder:
        for _ in range(2 + RECORDED):
            step()
            recorder.step()
    dist.barrier()
    dist.destroy_process_group()


# --- models ------------------------------------------------------------------------------------


def make_layers(setting: dict[str, Any], rank: int, chosen: range | None = None) -> Any:
    """Return the blocks of the model: a sleep between two linear layers."""
    import torch
    from torch import nn

    slow = setting.get("slow", {}).get(str(rank), 1.0)

    class Work(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, per_sample: float) -> Any:
            ctx.seconds = per_sample * len(x) * slow
            time.sleep(ctx.seconds)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            time.sleep(2 * ctx.seconds)
            return grad.clone(), None

    apply: Any = Work.apply

    class Block(nn.Module):
        def __init__(self, width: int, hidden: int, per_sample: float) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
            self.per_sample = per_sample

        def forward(self, x: Any) -> Any:
            hidden = torch.relu(apply(self.up(x), self.per_sample))
            return x + self.down(hidden)

    class Stack(nn.Module):
        def __init__(self, blocks: list[Block]) -> None:
            super().__init__()
            self.layers = nn.ModuleList(blocks)

        def forward(self, x: Any) -> Any:
            for n, block in enumerate(self.layers):
                every = setting.get("checkpoint", 0)
                if every and n % every == 0:
                    x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
                else:
                    x = block(x)
            return x

    hidden, sleeps = setting["hidden"], setting["ms_per_sample"]
    numbers = chosen if chosen is not None else range(len(hidden))
    return Stack([Block(setting["width"], hidden[n], sleeps[n] / 1e3) for n in numbers])


def make_ddp(setting: dict[str, Any], rank: int) -> Any:
    """Return a step of data-parallel training."""
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel

    model = make_layers(setting, rank)
    wrapped: Any = model
    if setting.get("overlap", True):
        cap = setting.get("bucket_mb")
        wrapped = DistributedDataParallel(model, bucket_cap_mb=cap, gradient_as_bucket_view=False)
        if setting.get("compress"):
            wrapped.register_comm_hook(None, default_hooks.fp16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    rounds = setting.get("accumulate", 1)

    def step() -> None:
        for n in range(rounds):
            x = torch.randn(setting["batch"], setting["width"])
            if n < rounds - 1 and wrapped is not model:
                with wrapped.no_sync():
                    wrapped(x).square().mean().backward()
            else:
                wrapped(x).square().mean().backward()
        if wrapped is model:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()

    return step


def make_fsdp(setting: dict[str, Any], rank: int) -> Any:
    """Return a step of sharded training."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = make_layers(setting, rank)
    import torch.distributed as dist

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    keep = not setting.get("reshard", True)
    for block in model.layers:
        fully_shard(block, mesh=mesh, reshard_after_forward=not keep)
    fully_shard(model, mesh=mesh, reshard_after_forward=not keep)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        model(torch.randn(setting["batch"], setting["width"])).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def make_pipeline(setting: dict[str, Any], rank: int) -> Any:
    """Return a step of pipeline training."""
    import torch
    from torch.distributed import get_world_size, pipelining

    ranks = get_world_size()
    stages = setting["stages"]
    firsts = [sum(stages[:n]) for n in range(len(stages))]
    device = torch.device("cpu")
    mine = [
        pipelining.PipelineStage(
            make_layers(setting, rank, range(firsts[n], firsts[n] + stages[n])),
            n,
            len(stages),
            device,
        )
        for n in range(rank, len(stages), ranks)
    ]
    name = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B"}
    made = getattr(pipelining, name.get(setting["schedule"], "ScheduleInterleaved1F1B"))
    schedule = made(
        mine[0] if len(mine) == 1 else mine,
        setting["micro"],
        loss_fn=lambda y, target: (y - target).square().mean(),
    )
    parameters = [p for stage in mine for p in stage.submod.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-4)

    def step() -> None:
        x = torch.randn(setting["batch"], setting["width"])
        if rank == 0:
            schedule.step(x)
        elif rank == ranks - 1:
            schedule.step(target=x, losses=[])
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()

    return step


def make_servers(setting: dict[str, Any], rank: int) -> Any:
    """Return a step with parameter servers: blocks are pushed when ready and pulled when needed."""
    import torch
    import torch.distributed as dist

    servers = setting["servers"]
    model = make_layers(setting, rank)
    blocks = list(model.layers)
    sizes = [sum(p.numel() for p in b.parameters()) for b in blocks]
    workers = list(range(servers, dist.get_world_size()))
    order = list(range(len(blocks)))[::-1]
    owner = {n: place % servers for place, n in enumerate(order)}
    held = [torch.zeros(size) for size in sizes]

    def serve() -> None:
        mine = [n for n in order if owner[n] == rank]
        buffers = {(n, w): torch.empty(sizes[n]) for n in mine for w in workers}
        asked: dict[Any, Any] = {
            key: dist.irecv(buffers[key], key[1], tag=key[0]) for key in buffers
        }
        sent: list[Any] = []
        for n in mine:
            for w in workers:
                asked[(n, w)].wait()
            held[n].sub_(torch.stack([buffers[(n, w)] for w in workers]).sum(0), alpha=1e-4)
            sent += [dist.isend(held[n], w, tag=1000 + n) for w in workers]
        for one in sent:
            one.wait()

    pulls: dict[int, tuple[Any, Any]] = {}
    pushes: list[Any] = []
    counted = dict.fromkeys(range(len(blocks)), 0)

    def push(n: int) -> None:
        counted[n] += 1
        if counted[n] < len(list(blocks[n].parameters())):
            return
        counted[n] = 0
        flat = torch.cat([p.grad.flatten() for p in blocks[n].parameters()])
        pushes.append((dist.isend(flat, owner[n], tag=n), flat))
        into = torch.empty(sizes[n])
        pulls[n] = (dist.irecv(into, owner[n], tag=1000 + n), into)

    for n, block in enumerate(blocks):
        for p in block.parameters():
            p.register_post_accumulate_grad_hook(lambda _p, n=n: push(n))

    def train() -> None:
        x: Any = torch.randn(setting["batch"], setting["width"])
        for n, block in enumerate(blocks):
            if n in pulls:
                asked, into = pulls.pop(n)
                asked.wait()
                at = 0
                for p in block.parameters():
                    p.data.copy_(into[at : at + p.numel()].view_as(p))
                    at += p.numel()
            x = block(x)
        x.square().mean().backward()
        for one, _ in pushes:
            one.wait()
        pushes.clear()
        model.zero_grad()

    return serve if rank < servers else train


MAKERS = {"ddp": make_ddp, "fsdp": make_fsdp, "pp": make_pipeline, "ps": make_servers}


def read_suite(name: str) -> dict[str, Any]:
    """Return a suite by its name, or from a file."""
    if name.endswith(".json"):
        found: dict[str, Any] = json.loads(Path(name).read_text())
        return found
    known: dict[str, Any] = json.loads(SUITES.read_text())[name]
    return known


def main() -> int:
    """Record every run of a suite, then write what is true of its pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--suite", default="small")
    parser.add_argument("--only", default="", help="runs whose name begins so")
    parser.add_argument("--passes", type=int, default=1, help="how often each run is recorded")
    options = parser.parse_args()
    suite = read_suite(options.suite)
    truth_file = options.out / "truth.json"
    truth = json.loads(truth_file.read_text()) if truth_file.exists() else {"runs": {}}
    with Network("mw", MOST_RANKS) as network:
        for _ in range(options.passes):
            for name, own in suite["runs"].items():
                if name.startswith(options.only):
                    setting = {**suite["model"][own["kind"]], **own}
                    took = record_run(network, setting, options.out / name)
                    add_pass(truth["runs"], name, setting, took)
                    write_truth(truth, suite, truth_file)
    return 0


def add_pass(runs: dict[str, Any], name: str, setting: dict[str, Any], took: list[float]) -> None:
    """Note the steps of a run; over several passes the mean of their medians is its step."""
    middle = statistics.median(took)
    passes = [*runs.get(name, {}).get("passes_ms", []), middle]
    runs[name] = {
        "setting": setting,
        "step_ms": statistics.mean(passes),
        "passes_ms": passes,
        "half_spread_percent": 50 * (max(passes) - min(passes)) / statistics.mean(passes),
        "sd_of_steps_percent": 100 * statistics.stdev(took) / middle,
    }
    scatter = runs[name]["sd_of_steps_percent"]
    print(f"{name}: {middle:.1f} ms, sd {scatter:.1f} %", flush=True)


def write_truth(truth: dict[str, Any], suite: dict[str, Any], path: Path) -> None:
    """Write the runs so far, and the pairs of which both were recorded."""
    known = truth["runs"]
    truth["pairs"] = [
        {"from": a, "to": b, "change": change.split()}
        for a, b, change in suite["pairs"]
        if a in known and b in known
    ]
    path.write_text(json.dumps(truth, indent=1))


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        run_worker(json.loads(sys.argv[2]), Path(sys.argv[3]))
    else:
        sys.exit(main())
