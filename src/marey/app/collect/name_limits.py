"""Names from the world, cut to the length that the store keeps too: one name, one spelling."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from marey.model.names import NAME_LIMIT, bounded
from marey.model.observation import Observation
from marey.model.workloads import Workload

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ATTRIBUTES_LIMIT = 128

Item = TypeVar("Item", bound="DataclassInstance")

_NAMED = (
    "hosts",
    "partitions",
    "host_states",
    "gpu_states",
    "workloads",
    "statuses",
    "allocations",
    "progress",
    "events",
)


def limit_names(observation: Observation) -> Observation:
    """Return the observation itself, unless a name in it is too long."""
    changes: dict[str, Any] = {}
    for name in _NAMED:
        items = getattr(observation, name)
        if any(_is_overlong(item) for item in items):
            changes[name] = tuple(_shorten_names(item) for item in items)
    return replace(observation, **changes) if changes else observation


def _is_overlong(item: Any) -> bool:
    if isinstance(item, Workload) and _has_overlong_attributes(item):
        return True
    # A plain loop: this looks at every name of every tick.
    for name in item.__slots__:
        value = getattr(item, name)
        if value.__class__ is str and len(value) > NAME_LIMIT:
            return True
    return False


def _has_overlong_attributes(workload: Workload) -> bool:
    attributes = workload.attributes
    return len(attributes) > ATTRIBUTES_LIMIT or any(
        len(key) > NAME_LIMIT or len(str(value)) > NAME_LIMIT for key, value in attributes.items()
    )


def _shorten_names(item: Item) -> Item:
    texts: dict[str, Any] = {
        field.name: bounded(value)
        for field in dataclasses.fields(item)
        if isinstance(value := getattr(item, field.name), str) and len(value) > NAME_LIMIT
    }
    if isinstance(item, Workload):
        kept = list(item.attributes.items())[:ATTRIBUTES_LIMIT]
        texts["attributes"] = {bounded(key): bounded(str(value)) for key, value in kept}
    return replace(item, **texts)
