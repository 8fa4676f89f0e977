"""Which GPU each pod has: named by an exporter or an annotation, or the only ones left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from marey.model.inventory import Gpu
from marey.sources.kubernetes.pods import SeenPod

# GPU ids by pod, ``namespace/name``.
Held = Mapping[str, Sequence[str]]


@dataclass(slots=True)
class GpuPlacements:
    """GPUs by pod; hosts on which some pod's are not known, with how many those are."""

    gpus: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unknown_counts: dict[str, int] = field(default_factory=dict)
    assumed: set[str] = field(default_factory=set)

    def holders(self) -> dict[str, int]:
        """Return how many pods have each GPU."""
        counts: dict[str, int] = {}
        for gpus in self.gpus.values():
            for gpu in gpus:
                counts[gpu] = counts.get(gpu, 0) + 1
        return counts


@dataclass(frozen=True, slots=True)
class _ReportedDevices:
    held: Held
    uuids: Mapping[str, str]
    assume: bool


def place_pods(
    pods: Iterable[SeenPod],
    gpus: Iterable[Gpu],
    held: Held,
    *,
    uuids: Mapping[str, str] | None = None,
    assume: bool = False,
    measured_hosts: frozenset[str] = frozenset(),
) -> GpuPlacements:
    """Return GPUs of every pod that holds some.

    Kubernetes itself tells only how many. Believed, in this order: what exporters say of the pod,
    the annotation of a device plugin, and what is left when it can only be this. ``assume`` gives
    the others the lowest free numbers, and says so; on a host that nobody measures, where no
    measurement can be put to the wrong pod by it, that is done in any case.
    ``uuids`` are GPU ids by UUID, as measured.
    """
    by_host: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        by_host.setdefault(gpu.host, []).append(gpu)
    on_host: dict[str, list[SeenPod]] = {}
    for pod in pods:
        if pod.holds and pod.gpus:
            on_host.setdefault(pod.host, []).append(pod)
    places = GpuPlacements()
    for host, there in on_host.items():
        unmeasured = host not in measured_hosts
        reported = _ReportedDevices(held, uuids or {}, assume or unmeasured)
        _place_on_host(host, there, by_host.get(host, []), reported=reported, places=places)
    return places


def _place_on_host(
    host: str,
    pods: list[SeenPod],
    gpus: list[Gpu],
    *,
    reported: _ReportedDevices,
    places: GpuPlacements,
) -> None:
    order = {gpu.gpu: at for at, gpu in enumerate(gpus)}
    waiting = []
    for pod in sorted(pods, key=lambda p: (p.placed_ms or 0, p.place)):
        named = [gpu for gpu in reported.held.get(pod.place, ()) if gpu in order]
        found = tuple(sorted(named, key=order.__getitem__)) or _read_annotation(
            pod, gpus, reported.uuids
        )
        if found:
            places.gpus[pod.place] = found
        else:
            waiting.append(pod)
    taken = {gpu for pod in pods for gpu in places.gpus.get(pod.place, ())}
    left = [gpu.gpu for gpu in gpus if gpu.gpu not in taken]
    wanted = sum(pod.gpus for pod in waiting)
    one_owner = len({pod.root for pod in waiting}) == 1
    certain = wanted == len(left) and one_owner and not any(pod.shared for pod in waiting)
    if not certain and not reported.assume:
        if wanted:
            places.unknown_counts[host] = wanted
        return
    for pod in waiting:
        places.gpus[pod.place], left = tuple(left[: pod.gpus]), left[pod.gpus :]
        if not certain:
            places.assumed.add(pod.place)


def _read_annotation(pod: SeenPod, gpus: list[Gpu], uuids: Mapping[str, str]) -> tuple[str, ...]:
    by_name = {str(gpu.index): gpu.gpu for gpu in gpus if gpu.instance is None}
    there = {gpu.gpu for gpu in gpus}
    found = (uuids.get(device) or by_name.get(device, "") for device in pod.devices)
    return tuple(gpu for gpu in found if gpu in there)
