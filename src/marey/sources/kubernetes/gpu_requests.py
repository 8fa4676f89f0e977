"""Resources by which pods ask for GPUs, of any vendor, and how many a pod takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from marey.sources.kubernetes.kubernetes_json import Container, PodSpec

# Every vendor's device plugin names its GPUs ``vendor/gpu``; these are the others.
WHOLE_GPUS = ("*/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi")
SHARED_GPUS = ("*/gpu.shared",)
INSTANCES = ("nvidia.com/mig-*",)
LIMIT = 4_096

_SUFFIXES = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50,
}  # fmt: skip


def parse_quantity(text: str | int | None) -> float:
    """Parse ``512Gi``, ``1500m`` or ``8`` as a number; 0 for what is none."""
    if text is None or isinstance(text, int):
        return float(text or 0)
    digits = text.rstrip("KMGTPiknum")
    try:
        return float(digits) * _SUFFIXES.get(text[len(digits) :], 0.0)
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class GpuResources:
    """Which names are GPUs; a site may add patterns such as ``example.com/npu``."""

    added: tuple[str, ...] = ()

    def is_gpu(self, name: str) -> bool:
        """Return whether a resource of this name is a GPU, a share of one or an instance of one."""
        return self._matches(name, (*WHOLE_GPUS, *SHARED_GPUS, *INSTANCES))

    def is_instance(self, name: str) -> bool:
        """Return whether it is a part cut out of a GPU (MIG)."""
        return any(fnmatchcase(name, pattern) for pattern in INSTANCES)

    def is_shared(self, name: str) -> bool:
        """Return whether it is a turn on a GPU that others use too."""
        return any(fnmatchcase(name, pattern) for pattern in SHARED_GPUS)

    def _matches(self, name: str, patterns: Iterable[str]) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in (*self.added, *patterns))

    def counts(self, amounts: Mapping[str, str | int] | None) -> dict[str, int]:
        """Return the GPUs among these amounts, by resource; none of what is zero."""
        found = {}
        for name, amount in (amounts or {}).items():
            if self.is_gpu(name):
                count = round(min(max(parse_quantity(amount), 0.0), LIMIT))
                if count:
                    found[name] = count
        return found

    def of_pod(self, spec: PodSpec) -> dict[str, int]:
        """Return the number of each GPU resource that the scheduler sets aside for a pod.

        Containers run side by side and add up; init containers run before them one by one, so
        the greatest counts, on top of the sidecars started before it.
        """
        asked = [self._of_container(c) for c in spec.containers or []]
        before = [
            (self._of_container(c), c.restart_policy == "Always")
            for c in spec.init_containers or []
        ]
        names = {name for counts in (*asked, *(c for c, _ in before)) for name in counts}
        return {name: _set_aside(name, asked, before) for name in sorted(names)}

    def _of_container(self, container: Container) -> dict[str, int]:
        resources = container.resources
        if resources is None:
            return {}
        # Of a device the request equals the limit, and either may be written alone.
        return self.counts({**(resources.requests or {}), **(resources.limits or {})})


def _set_aside(
    name: str, asked: list[dict[str, int]], before: list[tuple[dict[str, int], bool]]
) -> int:
    sidecars = greatest = 0
    for counts, stays in before:
        count = counts.get(name, 0)
        greatest = max(greatest, sidecars + count)
        sidecars += count if stays else 0
    return max(greatest, sidecars + sum(counts.get(name, 0) for counts in asked))
