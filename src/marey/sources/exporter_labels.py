"""Labels of an exporter's series → which GPU it speaks of, whatever the labels are called."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from marey.model.inventory import Gpu
from marey.model.names import bounded

# In order of trust. dcgm-exporter renamed Hostname in 2026; a server that does not honour an
# exporter's labels puts ``exported_`` before those it has itself.
# Telegraf calls the host "host".
HOST_LABELS = (
    *("Hostname", "hostname", "exported_Hostname", "exported_hostname", "nodename", "node"),
    *("node_name", "host"),
)
# AMD's older exporter (amd_smi_exporter) calls the index by the name of each metric; Ascend's calls
# it "id" or "npuID", omnistat "card", AWS Neuron "neuroncore".
INDEX_LABELS = (
    *("gpu", "gpu_id", "exported_gpu", "gpu_index", "minor_number", "index"),
    *("gpu_use_percent", "gpu_memory_use_percent", "gpu_power"),
    *("gpu_SCLK", "gpu_MCLK", "gpu_current_temperature"),
    *("npuID", "card", "neuroncore", "id"),
)
UUID_LABELS = ("UUID", "uuid", "gpu_uuid", "hw_id", "vdie_id")
# AMD's series is the model ("AMD Instinct MI300X OAM"), its card_model a board number.
MODEL_LABELS = (
    *("modelName", "model_name", "card_series", "card_model", "dev_name", "hw_model"),
    *("productname", "name"),
)
INSTANCE_LABELS = ("GPU_I_ID", "gpu_i_id")
# AMD numbers partitions from 0, and an undivided GPU (SPX, N/A, nothing) is its own partition 0.
PARTITION_LABEL, PARTITION_TYPE_LABEL = "gpu_partition_id", "gpu_compute_partition_type"
DIVIDED_TYPES = ("dpx", "tpx", "qpx", "cpx")
DIVIDED = re.compile(rf'{PARTITION_TYPE_LABEL}="(?:{"|".join(DIVIDED_TYPES)})"', re.IGNORECASE)
# Intel's XPU Manager tells several places and tiles of a GPU under one name.
TILE_LABEL = "sub_dev"
PLACE_LABELS = {"location": "gpu", TILE_LABEL: "", "type": "actual"}
# … its successor (xpumd) several sensors, tasks, domains and statistics; these are the GPU's own.
ADDRESS_LABEL, HARDWARE_LABEL = "pci_bdf", "hw_id"
XPUMD_LABELS: Mapping[str, tuple[str, ...]] = {
    "hw_gpu_task": ("compute-all",),
    "hw_sensor_location": ("gpu", "card"),
    "hw_memory_location": ("device",),
    "hw_frequency_domain": ("gpu",),
    "statistic": ("max",),
    "aggregation": ("avg",),
    "com_intel_subdevice_id": (),
}
JOB_LABELS = ("hpc_job", "job_id")
# A server's own labels of the exporter's pod stand beside those of the pod that has the GPU.
POD_LABELS = (
    ("exported_namespace", "exported_pod"),
    ("namespace", "pod"),
    ("kube_namespace", "kube_pod"),
    # Of 2019, before the names were DCGM_FI_*.
    ("pod_namespace", "pod_name"),
    # Ascend's exporter.
    ("namespace", "podName"),
)
# What the pods and containers of exporters are called. A server that does not honour an exporter's
# labels puts its pod where that of the work would stand; GPUs without work have no other pod.
_EXPORTER = re.compile(r"(?:^|[-_])exporter(?:$|[-_])|^xpumd", re.IGNORECASE)
OWN_LABELS = ("container", "pod")
TARGET_LABELS = ("job", "service")
# Series of a node's other parts, which carry a ``gpu`` label of their own meaning or none.
OTHER_PARTS = ("nvswitch", "cpucore")
# AMD's clocks come one per domain under one name; only the compute engines' is the GPU's clock.
CLOCK_LABEL, GPU_CLOCKS = "clock_type", ("GPU_CLOCK_TYPE_SYSTEM", "system", "")
LABELS_LIMIT = 64

# Prometheus 3 may put a label's name in quotes.
_LABEL = re.compile(
    r'\s*"?([a-zA-Z_][a-zA-Z0-9_]*)"?\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.DOTALL
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_DEVICE = re.compile(r"^(?:nvidia|card|renderD|hl|accel)?(\d{1,4})$")
# The exporter of nvidia-smi writes UUIDs without the prefix that everybody else writes.
_BARE_UUID = re.compile(r"^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


# Labels of its series, as it writes them and as a server adds to them.
_SMI_LABELS = frozenset(
    {"uuid", "name", "index", "instance", "job", "node", "nodename", "__name__"}
)
# Its series that give a GPU's number and its model; all others have the UUID alone.
SMI_PREFIX = "nvidia_smi_"
SMI_INDEX, SMI_INFO = f"{SMI_PREFIX}index", f"{SMI_PREFIX}gpu_info"
# The series of xpumd that every GPU has, with its model.
XPUMD_INFO = "hw_gpu_info"


@dataclass(frozen=True, slots=True)
class GpuLabels:
    """What a set of labels says of the GPU; ``host`` is empty where no label names one."""

    host: str
    index: int | None
    instance: int | None = None
    uuid: str = ""
    model: str = ""
    job: str = ""

    def gpu(self, host: str, index: int) -> Gpu:
        """Return the GPU itself, once host and index are known."""
        return Gpu(host, index, self.instance, self.uuid, self.model)


def parse_labels(text: str) -> dict[str, str] | None:
    """Parse ``a="1",b="2"`` as a mapping; None where it is not labels."""
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None or len(labels) >= LABELS_LIMIT:
            return labels if not text[at:].strip(" ,") else None
        name, value = match.groups()
        labels[name] = _ESCAPE.sub(_unescape, value) if "\\" in value else value
        at = match.end()
    return labels


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def read_gpu_labels(labels: Mapping[str, str], *, numbered: bool = False) -> GpuLabels | None:
    """Return which GPU these labels name; None where they name something else.

    ``numbered`` says that AMD partitions have numbers of their own (``are_partitions_numbered``).
    """
    if any(labels.get(part) for part in OTHER_PARTS):
        return None
    if labels.get(CLOCK_LABEL, "") not in GPU_CLOCKS or _is_other_place(labels):
        return None
    if HARDWARE_LABEL in labels and not _is_xpumd_gpu(labels):
        return None
    index = _read_index(labels)
    uuid = _find_first(labels, UUID_LABELS)
    if set(labels) <= _SMI_LABELS and _BARE_UUID.match(uuid):
        uuid = f"GPU-{uuid}"
    if index is None and not uuid:
        return None
    instance = _find_first(labels, INSTANCE_LABELS)
    if not instance and not numbered:
        instance = _read_partition(labels)
    return GpuLabels(
        host=bounded(_read_host(labels)),
        index=index,
        instance=int(instance) if instance.isdecimal() and len(instance) <= 4 else None,
        uuid=bounded(uuid),
        model=bounded(_find_first(labels, MODEL_LABELS)),
        job=bounded(_find_first(labels, JOB_LABELS) or _read_pod(labels)),
    )


def _read_partition(labels: Mapping[str, str]) -> str:
    """Return the number of an AMD partition; empty where the GPU is not divided."""
    partition, kind = labels.get(PARTITION_LABEL, ""), labels.get(PARTITION_TYPE_LABEL, "").lower()
    return partition if kind in DIVIDED_TYPES or (kind != "spx" and partition != "0") else ""


def are_partitions_numbered(found: Iterable[Mapping[str, str]]) -> bool:
    """Return whether each partition of divided AMD GPUs has a ``gpu_id`` of its own.

    Then that number is the one by which schedulers call it, and no GPU is named twice.
    """
    pairs = {
        ((_read_host(labels), labels.get("gpu_id", "")), labels[PARTITION_LABEL])
        for labels in found
        if labels.get(PARTITION_TYPE_LABEL, "").lower() in DIVIDED_TYPES
        and labels.get(PARTITION_LABEL)
    }
    return len({gpu for gpu, _ in pairs}) == len(pairs) > 1


def _read_host(labels: Mapping[str, str]) -> str:
    """Return the host; where an exporter took its own pod for it, what the server says instead."""
    named = [labels[name] for name in HOST_LABELS if labels.get(name)]
    own = labels.get("pod", "")
    return next((name for name in named if name != own), named[0] if named else "")


def _is_other_place(labels: Mapping[str, str]) -> bool:
    """Return whether an Intel series is of a tile, of memory, or of a clock that was asked for."""
    if not labels.get("pci_bdf") or "dev_name" not in labels:
        return False
    return any(labels.get(name, own) != own for name, own in PLACE_LABELS.items())


def _is_xpumd_gpu(labels: Mapping[str, str]) -> bool:
    """Return whether a series of xpumd, or of hardware in OpenTelemetry's words, is of a GPU."""
    if not labels.get(ADDRESS_LABEL):
        return False
    return all(labels[name] in own for name, own in XPUMD_LABELS.items() if labels.get(name))


def number_by_address(found: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """Return the number of each GPU that xpumd tells: in order of PCI addresses, host by host."""
    places = {
        (labels[HARDWARE_LABEL], labels.get("instance") or _read_host(labels)): labels[
            ADDRESS_LABEL
        ].lower()
        for labels in found
        if labels.get(HARDWARE_LABEL) and labels.get(ADDRESS_LABEL)
    }
    numbers: dict[str, int] = {}
    taken: dict[str, int] = {}
    for (uuid, host), _ in sorted(places.items(), key=lambda item: (item[0][1], item[1])):
        numbers[bounded(uuid)] = taken.get(host, 0)
        taken[host] = taken.get(host, 0) + 1
    return numbers


def read_whole_gpu(labels: Mapping[str, str]) -> GpuLabels | None:
    """Return the GPU that a series of one of its tiles belongs to; None where it is no tile's."""
    if not labels.get(TILE_LABEL) or not labels.get("pci_bdf"):
        return None
    return read_gpu_labels({k: v for k, v in labels.items() if k != TILE_LABEL})


def _read_pod(labels: Mapping[str, str]) -> str:
    """Read ``namespace/pod`` of the pod that has the GPU."""
    for namespace, pod in POD_LABELS:
        if labels.get(pod) and not (pod == "pod" and _is_exporters_pod(labels)):
            return f"{labels.get(namespace) or labels.get('namespace', '')}/{labels[pod]}"
    return ""


def _is_exporters_pod(labels: Mapping[str, str]) -> bool:
    """Return whether ``pod`` is the exporter's own, which a server added."""
    if any(_EXPORTER.search(labels.get(name, "")) for name in OWN_LABELS):
        return True
    targets = (labels.get(name, "") for name in TARGET_LABELS)
    return any(target and labels["pod"].startswith(f"{target}-") for target in targets)


def parse_host_name(text: str, *, short: bool = False) -> str:
    """Return a host without its port.

    ``short`` also cuts the domain off, never parts of an address.
    """
    host = text.rsplit("://", 1)[-1].split("/", 1)[0]
    if host.startswith("["):
        return bounded(host[1:].split("]", 1)[0])
    if host.count(":") == 1:
        host = host.split(":", 1)[0]
    return bounded(shorten_name(host) if short else host)


def shorten_name(host: str) -> str:
    """Shorten ``node3.site.example`` to ``node3``; an address stays whole."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host.split(".", 1)[0]
    return host


def _read_index(labels: Mapping[str, str]) -> int | None:
    text = _find_first(labels, INDEX_LABELS)
    if text.isdecimal() and text.isascii() and len(text) <= 4:
        return int(text)
    match = _DEVICE.match(labels.get("device", "") or labels.get("dev_file", ""))
    return int(match[1]) if match and match[1].isascii() else None


def _find_first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")
