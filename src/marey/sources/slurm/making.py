"""Making a million small objects at once, as the first snapshot of a large cluster does."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from marey.model.native import native_module

P = ParamSpec("P")
T = TypeVar("T")


def quick_maker(cls: Callable[P, T]) -> Callable[P, T]:
    """What makes the same objects of a frozen dataclass with slots, at a fraction of the price.

    For classes of plain values only (texts, numbers, their tuples and mappings): what the native
    maker makes is not looked at by the collector of reference cycles.
    """
    return native_maker(cls) or python_maker(cls)


def native_maker(cls: Callable[P, T]) -> Callable[P, T] | None:
    """The maker in C++, which fills the slots at once; None where it was not built."""
    module = native_module()
    if module is None:
        return None
    fields = dataclasses.fields(cast(Any, cls))
    last = itertools.takewhile(lambda each: each.default is not dataclasses.MISSING, fields[::-1])
    defaults = [each.default for each in last][::-1]
    return cast(Callable[P, T], module.new_maker(cls, [each.name for each in fields], defaults))


def python_maker(cls: Callable[P, T]) -> Callable[P, T]:
    """The maker in Python.

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
