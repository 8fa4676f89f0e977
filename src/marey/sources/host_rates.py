"""node_exporter's counters → a host's levels: what happened between two scrapes."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Interfaces that repeat what a real one carries (bridges, bonds, containers) or carry nothing out.
_VIRTUAL = re.compile(
    r'device="(?:lo|veth|docker|br-|br\d|virbr|cni|cali|flannel|bond|tun|tap|vlan|dummy'
    r"|dm-|md\d|loop|ram|zram)"
)
_IDLE = ('mode="idle"', 'mode="iowait"')
MB = 1e-6

Series = Mapping[str, Mapping[str, float]]


class HostRates:
    """Remembers one host's counters; a counter that fell or is new says nothing until the next."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, float]] = {}
        self._before_ms = 0

    def levels(self, series: Series, now_ms: int) -> dict[str, float]:
        """Return the catalogue's host metrics, as far as these series tell them."""
        found: dict[str, float] = {}
        load = series.get("node_load1")
        if load:
            found["host_load"] = next(iter(load.values()))
        found |= _read_memory(series)
        counters = _read_counters(series)
        seconds = (now_ms - self._before_ms) / 1000
        if self._before and seconds > 0:
            found |= self._compute_rates(counters, seconds)
        if counters:
            self._before, self._before_ms = counters, now_ms
        return found

    def _compute_rates(self, now: dict[str, dict[str, float]], seconds: float) -> dict[str, float]:
        found: dict[str, float] = {}
        grown = {name: self._compute_growth(name, counts) for name, counts in now.items()}
        idle, total = grown.get("idle"), grown.get("cpu")
        if idle is not None and total:
            found["host_cpu"] = min(100.0, max(0.0, 100.0 * (1 - idle / total)))
        for metric, names in _RATES.items():
            parts = [grown[name] for name in names if grown.get(name) is not None]
            if parts:
                found[metric] = sum(p for p in parts if p is not None) * MB / seconds
        return found

    def _compute_growth(self, name: str, now: dict[str, float]) -> float | None:
        before = self._before.get(name)
        if before is None:
            return None
        steps = [now[key] - before[key] for key in now if key in before]
        # Since a reset a counter tells less than the whole: left out, never a negative or a jump.
        kept = [step for step in steps if step >= 0]
        return sum(kept) if kept else None


_RATES = {
    "host_net_rx": (
        "node_network_receive_bytes_total",
        "node_infiniband_port_data_received_bytes_total",
    ),
    "host_net_tx": (
        "node_network_transmit_bytes_total",
        "node_infiniband_port_data_transmitted_bytes_total",
    ),
    "host_fs_read": ("node_disk_read_bytes_total",),
    "host_fs_write": ("node_disk_written_bytes_total",),
}


def _read_memory(series: Series) -> dict[str, float]:
    total = next(iter(series.get("node_memory_MemTotal_bytes", {}).values()), 0.0)
    free = next(iter(series.get("node_memory_MemAvailable_bytes", {}).values()), -1.0)
    if total <= 0 or not 0 <= free <= total:
        return {}
    return {"host_mem_share": 100 * (1 - free / total), "host_mem_used": (total - free) / 2**20}


def _read_counters(series: Series) -> dict[str, dict[str, float]]:
    """Return counters worth remembering: all cores as two sums, devices one by one."""
    found: dict[str, dict[str, float]] = {}
    cpu = series.get("node_cpu_seconds_total")
    if cpu:
        found["cpu"] = {"": sum(cpu.values())}
        found["idle"] = {"": sum(v for k, v in cpu.items() if any(m in k for m in _IDLE))}
    for name in (name for names in _RATES.values() for name in names):
        devices = {k: v for k, v in series.get(name, {}).items() if not _VIRTUAL.search(k)}
        if devices:
            found[name] = devices
    return found
