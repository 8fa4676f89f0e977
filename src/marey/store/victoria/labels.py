"""How Marey's names become labels and questions of VictoriaMetrics, and back again.

A series is ``marey_<metric>{marey, cluster, host, gpu, instance}``. Beside the metrics every kind
of entity has ``marey_<kind>_rows``, one sample per row of a batch with the workload as a label: it
says which moments there are and who held the GPU then. ``marey_<kind>_written`` has one series per
cluster: the first and last moment of every parcel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from marey.model.errors import InvalidInput
from marey.model.metrics import Entity
from marey.model.names import parse_gpu_id
from marey.store.facts import bounded_gpu

PREFIX = "marey_"
SITE = "marey"
CLUSTER = "cluster"
WORKLOAD = "workload"
REVISION = "revision"
ENTITY_LABELS = ("host", "gpu", "instance")

Parts = tuple[str, str, str]

# Inside a line of CSV these need no quotes; a name with any other character goes as JSON.
_PLAIN = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\"',\\ ]*")
# The same as the server's regular expressions say it.
_PLAIN_THERE = r"[^\x00-\x1f\x7f-\x9f\x{2028}\x{2029}\x22\x27,\x5c ]*"
_REGEX_SIGNS = re.compile(r"([\\.+*?()|\[\]{}^$])")


def series_name(metric: str) -> str:
    """The name of a metric's series."""
    return PREFIX + metric


def rows_name(kind: Entity) -> str:
    """The name of the series that have one sample per row."""
    return f"{PREFIX}{kind}_rows"


def written_name(kind: Entity) -> str:
    """The name of the series that say how far a cluster's samples reach."""
    return f"{PREFIX}{kind}_written"


def clean_entity(name: str) -> str:
    """The name as it is kept: bounded, without what no store can hold."""
    return bounded_gpu(name)


def entity_parts(kind: Entity, entity: str) -> Parts:
    """Host, GPU and instance of an entity; a name that is no GPU's is all host."""
    if kind is Entity.GPU:
        try:
            parsed = parse_gpu_id(entity)
        except InvalidInput:
            return entity, "", ""
        # ``node:01`` is not how GPU 1 is written; as it stands it comes back.
        if str(parsed) == entity:
            instance = "" if parsed.instance is None else str(parsed.instance)
            return parsed.host, str(parsed.index), instance
    return entity, "", ""


def entity_of(labels: Mapping[str, str]) -> str:
    """The entity that these labels name: the inverse of ``entity_parts``."""
    host, gpu, instance = (labels.get(name, "") for name in ENTITY_LABELS)
    if not gpu:
        return host
    return f"{host}:{gpu}.{instance}" if instance else f"{host}:{gpu}"


def is_plain(text: str) -> bool:
    """Whether a name can stand in a line of CSV as it is."""
    return _PLAIN.fullmatch(text) is not None


def plain_matcher(*, plain: bool = True) -> str:
    """A matcher's sign and value for names that can stand in a line of CSV, or cannot."""
    return ("=~" if plain else "!~") + quoted(_PLAIN_THERE)


def quoted(text: str) -> str:
    """A string of MetricsQL; every sign that could end it or the line is escaped."""
    return '"' + "".join(_escaped(sign) for sign in text) + '"'


def _escaped(sign: str) -> str:
    if sign in '\\"':
        return "\\" + sign
    if sign.isprintable():
        return sign
    code = ord(sign)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_of(names: Iterable[str]) -> str:
    """A matcher's sign and value for any of these names."""
    listed = sorted(set(names))
    if len(listed) == 1:
        return f"={quoted(listed[0])}"
    either = "|".join(_REGEX_SIGNS.sub(r"\\\1", name) for name in listed)
    return f"=~{quoted(either)}"


def selector(names: Sequence[str], matchers: Mapping[str, str]) -> str:
    """Series of these names whose labels match; a matcher is its sign and quoted value."""
    inside = [f"__name__{one_of(names)}"]
    inside += [f"{label}{matcher}" for label, matcher in matchers.items()]
    return "{" + ",".join(inside) + "}"


def entity_matchers(kind: Entity, entities: Sequence[str]) -> list[dict[str, str]]:
    """Matchers that together select these entities; hosts with the same GPUs share one."""
    by_host: dict[str, set[tuple[str, str]]] = {}
    for entity in entities:
        host, gpu, instance = entity_parts(kind, entity)
        by_host.setdefault(host, set()).add((gpu, instance))
    groups: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for host, devices in by_host.items():
        for instance in sorted({device[1] for device in devices}):
            gpus = tuple(sorted(gpu for gpu, own in devices if own == instance))
            groups.setdefault((gpus, instance), []).append(host)
    return [
        {"host": one_of(hosts), "gpu": one_of(gpus), "instance": f"={quoted(instance)}"}
        for (gpus, instance), hosts in groups.items()
    ]


def metric_of(labels: Mapping[str, Any]) -> str:
    """The metric of a series."""
    return str(labels.get("__name__", "")).removeprefix(PREFIX)
