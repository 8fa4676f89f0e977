"""One file per rank, complete or absent: what the profiler wrote, with what it did not know."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any, BinaryIO

# The key that Marey's readers look for at the top of a trace.
METADATA_KEY = "mareyRecord"
VERSION = 1
_BLOCK = 1 << 20


def host_name() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


def clock_identity() -> str:
    """Return the id of the booted kernel: two processes share it if they read the same clock."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{host_name()}/{boot}"


def rank_file(folder: Path, rank: int) -> Path:
    """Return where a rank's trace goes; the name sorts by rank."""
    return folder / f"rank{rank:05d}.json.gz"


def write_trace(source: Path, target: Path, metadata: dict[str, Any]) -> None:
    """Copy a profiler's JSON trace to ``target`` (gzip), with ``metadata`` as its first key.

    The trace is streamed, never parsed, and appears under its name only when it is whole.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with _open_file(source) as trace, gzip.open(partial, "wb", compresslevel=1) as out:
            head = trace.read(_BLOCK)
            brace = head.find(b"{")
            if brace < 0:
                raise ValueError(f"{source.name} is not a JSON trace: it has no opening brace")
            rest = head[brace + 1 :]
            comma = b"" if rest.lstrip().startswith(b"}") else b","
            out.write(b"{" + json.dumps(METADATA_KEY).encode() + b":")
            out.write(json.dumps(metadata).encode() + comma + rest)
            shutil.copyfileobj(trace, out, _BLOCK)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _open_file(path: Path) -> gzip.GzipFile | BinaryIO:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
