"""How Marey's names become labels and questions of VictoriaMetrics, and back again.

A series is ``marey_<metric>{marey, cluster, host, gpu, instance}``. Beside the metrics every kind
of entity has ``marey_<kind>_rows``, one sample per row of a batch with the workload as a label: it
says which moments there are and who held the GPU then. ``marey_<kind>_written`` has one series per
cluster: the first and last moment of every entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from marey.model.errors import InvalidInput
from marey.model.metrics import Entity
from marey.model.names import parse_gpu_id
from marey.store.database.facts import limit_gpu_name

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


def get_series_name(metric: str) -> str:
    """Return the name of a metric's series."""
    return PREFIX + metric


def get_rows_name(kind: Entity) -> str:
    """Return the name of the series that have one sample per row."""
    return f"{PREFIX}{kind}_rows"


def get_reach_name(kind: Entity) -> str:
    """Return the name of the series that say how far a cluster's samples reach."""
    return f"{PREFIX}{kind}_written"


def clean_entity(name: str) -> str:
    """Return the name as it is kept: bounded, without what no store can hold."""
    return limit_gpu_name(name)


def split_entity(kind: Entity, entity: str) -> Parts:
    """Return host, GPU and instance of an entity; a name that is no GPU's is all host."""
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


def join_entity(labels: Mapping[str, str]) -> str:
    """Return the entity that these labels name: the inverse of ``entity_parts``."""
    host, gpu, instance = (labels.get(name, "") for name in ENTITY_LABELS)
    if not gpu:
        return host
    return f"{host}:{gpu}.{instance}" if instance else f"{host}:{gpu}"


def is_plain(text: str) -> bool:
    """Return whether a name can stand in a line of CSV as it is."""
    return _PLAIN.fullmatch(text) is not None


def make_plain_matcher(*, plain: bool = True) -> str:
    """Return a matcher's sign and value for names that can stand in a line of CSV, or cannot."""
    return ("=~" if plain else "!~") + quote_text(_PLAIN_THERE)


def quote_text(text: str) -> str:
    """Return a string of MetricsQL; every sign that could end it or the line is escaped."""
    return '"' + "".join(_escape_sign(sign) for sign in text) + '"'


def _escape_sign(sign: str) -> str:
    if sign in '\\"':
        return "\\" + sign
    if sign.isprintable():
        return sign
    code = ord(sign)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def match_any(names: Iterable[str]) -> str:
    """Return a matcher's sign and value for any of these names."""
    listed = sorted(set(names))
    if len(listed) == 1:
        return f"={quote_text(listed[0])}"
    either = "|".join(_REGEX_SIGNS.sub(r"\\\1", name) for name in listed)
    return f"=~{quote_text(either)}"


def make_selector(names: Sequence[str], matchers: Mapping[str, str]) -> str:
    """Return series of these names whose labels match; a matcher is its sign and quoted value."""
    inside = [f"__name__{match_any(names)}"]
    inside += [f"{label}{matcher}" for label, matcher in matchers.items()]
    return "{" + ",".join(inside) + "}"


def make_entity_matchers(kind: Entity, entities: Sequence[str]) -> list[dict[str, str]]:
    """Return matchers that together select these entities; hosts with the same GPUs share one."""
    by_host: dict[str, set[tuple[str, str]]] = {}
    for entity in entities:
        host, gpu, instance = split_entity(kind, entity)
        by_host.setdefault(host, set()).add((gpu, instance))
    groups: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for host, devices in by_host.items():
        for instance in sorted({device[1] for device in devices}):
            gpus = tuple(sorted(gpu for gpu, own in devices if own == instance))
            groups.setdefault((gpus, instance), []).append(host)
    return [
        {"host": match_any(hosts), "gpu": match_any(gpus), "instance": f"={quote_text(instance)}"}
        for (gpus, instance), hosts in groups.items()
    ]


def get_metric(labels: Mapping[str, Any]) -> str:
    """Return the metric of a series."""
    return str(labels.get("__name__", "")).removeprefix(PREFIX)
