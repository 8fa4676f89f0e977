"""Start the ranks of a small torch run here, each in its own network namespace where asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import free_port

SCRIPT = Path(__file__).with_name("train.py")


def run_ranks(
    out: Path,
    *options: str,
    world: int = 4,
    prefixes: list[list[str]] | None = None,
    address: str = "127.0.0.1",
    interface: str = "lo",
    timeout_s: float = 600,
    script: Path = SCRIPT,
) -> None:
    """Run the training script on every rank to its end; raises with the ranks' own words."""
    port = free_port()
    processes = []
    for rank in range(world):
        env = dict(
            os.environ,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(world),
            MASTER_ADDR=address,
            MASTER_PORT=str(port),
            OMP_NUM_THREADS="1",
            GLOO_SOCKET_IFNAME=interface,
        )
        command = [sys.executable, str(script), "--out", str(out), *options]
        prefix = prefixes[rank] if prefixes else []
        processes.append(
            subprocess.Popen(
                [*prefix, *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        )
    try:
        said = [process.communicate(timeout=timeout_s)[0].decode() for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    failed = [
        f"rank {rank}: {words[-2000:]}"
        for rank, (process, words) in enumerate(zip(processes, said, strict=True))
        if process.returncode
    ]
    if failed:
        raise RuntimeError("\n".join(failed))


def _tool(name: str) -> str:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin") or name


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=60)


@contextmanager
def slow_link(rank: int, *, world: int, rate: str) -> Iterator[tuple[list[list[str]], str, str]]:
    """One namespace per rank on a bridge, with one rank's link slowed to ``rate``.

    Yields the command prefix of each rank, rank 0's address and the interface's name.
    """
    ip, tc = _tool("ip"), _tool("tc")
    tag = f"m{os.getpid() % 100000}"
    hub = f"{tag}hub"
    spaces = [f"{tag}r{r}" for r in range(world)]
    try:
        # The bridge has a namespace of its own: nothing appears on the machine's own network.
        _run(ip, "netns", "add", hub)
        _run(ip, "-n", hub, "link", "add", "br0", "type", "bridge")
        _run(ip, "-n", hub, "link", "set", "br0", "up")
        for r, space in enumerate(spaces):
            _run(ip, "netns", "add", space)
            _run(
                *(ip, "-n", hub, "link", "add", f"v{r}", "type", "veth"),
                *("peer", "name", "eth0", "netns", space),
            )
            _run(ip, "-n", hub, "link", "set", f"v{r}", "master", "br0", "up")
            _run(ip, "-n", space, "addr", "add", f"10.77.0.{r + 1}/24", "dev", "eth0")
            _run(ip, "-n", space, "link", "set", "eth0", "up")
            _run(ip, "-n", space, "link", "set", "lo", "up")
        shape = ("tbf", "rate", rate, "burst", "64kb", "latency", "200ms")
        _run(tc, "-n", spaces[rank], "qdisc", "add", "dev", "eth0", "root", *shape)
        _run(tc, "-n", hub, "qdisc", "add", "dev", f"v{rank}", "root", *shape)
        yield [[ip, "netns", "exec", space] for space in spaces], "10.77.0.1", "eth0"
    finally:
        for space in [*spaces, hub]:
            subprocess.run([ip, "netns", "del", space], capture_output=True, timeout=60)


def may_shape_links() -> bool:
    """Whether this machine lets us make namespaces and shape a link in them."""
    try:
        with slow_link(0, world=1, rate="100mbit"):
            return True
    except (OSError, subprocess.SubprocessError):
        return False
