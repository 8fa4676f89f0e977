"""Making a million small objects at once, as the first snapshot of a large cluster does."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


@contextlib.contextmanager
def collecting_paused() -> Iterator[None]:
    """Pause the collector of reference cycles, unless somebody else has done so already.

    Nothing here makes cycles; what others make meanwhile is found as soon as this ends.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


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
