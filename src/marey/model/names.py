"""Names of clusters, hosts, GPUs and workloads, and how long they may be."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from marey.model.errors import InvalidInput, shown

DEFAULT_CLUSTER = "default"

# Long enough for any scheduler's job name we have seen (Slurm: 256, Kubernetes: 253); longer ones
# are kept distinct by a digest, so hostile names cost memory once and nothing is silently merged.
NAME_LIMIT = 256
_DIGEST_CHARS = 12
# So many digits that every scheduler's job numbers fit.
_NUMBER_DIGITS = 12

_GPU_ID = re.compile(r"^(?P<host>.+):(?P<index>\d{1,4})(?:\.(?P<instance>\d{1,4}))?$", re.DOTALL)


def bounded(text: str) -> str:
    """Return the name itself, or for an overlong one its beginning and a digest of the whole."""
    clean = text.encode("utf-8", "replace").decode() if not text.isascii() else text
    clean = clean.replace("\x00", "�")
    if len(clean) <= NAME_LIMIT:
        return clean
    digest = hashlib.blake2b(clean.encode(), digest_size=_DIGEST_CHARS // 2).hexdigest()
    return f"{clean[: NAME_LIMIT - _DIGEST_CHARS - 1]}…{digest}"


@dataclass(frozen=True, slots=True)
class GpuName:
    """The parts of a GPU's id: ``host:index``, or ``host:index.instance`` for a MIG instance."""

    host: str
    index: int
    instance: int | None = None

    def __str__(self) -> str:
        return gpu_id(self.host, self.index, self.instance)


def gpu_id(host: str, index: int, instance: int | None = None) -> str:
    """Make ``node3:5``, or ``node3:5.2`` for a MIG instance."""
    return f"{host}:{index}" if instance is None else f"{host}:{index}.{instance}"


def parse_gpu_id(text: str) -> GpuName:
    """Return the parts of ``host:index`` or ``host:index.instance``."""
    match = _GPU_ID.match(text)
    if match is None:
        raise InvalidInput(
            f"'{shown(text)}' is not a GPU; write host:index, or host:index.instance for MIG."
        )
    instance = match["instance"]
    return GpuName(match["host"], int(match["index"]), None if instance is None else int(instance))


def pad_numbers(name: str) -> str:
    """Return a name whose text sorts as its numbers do: task 41_2 comes before 41_10."""
    return "_".join(
        part.zfill(_NUMBER_DIGITS) if part.isdecimal() else part for part in name.split("_")
    )
