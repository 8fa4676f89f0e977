"""Making a million small objects at once, as the first snapshot of a large cluster does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


def quick_maker(cls: Callable[P, T]) -> Callable[P, T]:
    """What makes the same objects of a frozen dataclass with slots, at a quarter of the price.

    A frozen class sets each field through a call; here an open twin of it, which has the same
    fields in the same slots, sets them plainly and then becomes the class itself.
    """
    frozen = cast(Any, cls)
    shape = [
        (
            each.name,
            each.type,
            dataclasses.field(default=each.default)
            if each.default_factory is dataclasses.MISSING
            else dataclasses.field(default_factory=each.default_factory),
        )
        for each in dataclasses.fields(frozen)
    ]

    def become(made: Any) -> None:
        made.__class__ = frozen

    inside = {"__post_init__": become}
    twin = dataclasses.make_dataclass(frozen.__name__, shape, slots=True, namespace=inside)
    return cast(Callable[P, T], twin)
