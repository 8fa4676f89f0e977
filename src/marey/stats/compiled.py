"""Numba's ``njit``, put off until there is enough to do: importing and compiling cost a second.

A kernel runs as plain Python on small input, and compiled on large input or once Numba is loaded.
Python may handle a bounded number of elements in all, so that many small calls do not add up to
more than the compiler would have cost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

# Elements of one call that Python handles in a few hundredths of a second, and of all calls.
SMALL_ELEMENTS = 20_000
MOST_ELEMENTS = 400_000


class Kernel:
    """A function of arrays that is compiled when it is first worth it."""

    spent = 0

    def __init__(self, function: Callable[..., Any], small: int, options: dict[str, Any]) -> None:
        self.function = function
        self._small = small
        self._options = options
        self._compiled: Callable[..., Any] | None = None
        update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        """Run the kernel, interpreted or compiled; the result is the same."""
        if self._compiled is None and self._runs_in_python(args):
            with np.errstate(all="ignore"):
                return self.function(*args)
        return self.compile()(*args)

    def _runs_in_python(self, args: tuple[Any, ...]) -> bool:
        if "numba" in sys.modules:
            return False
        size = sum(a.size for a in args if isinstance(a, np.ndarray))
        if size > self._small or Kernel.spent + size > MOST_ELEMENTS:
            return False
        Kernel.spent += size
        return True

    def compile(self) -> Callable[..., Any]:
        """Return Numba's function; kernels that this one calls are compiled with it."""
        if self._compiled is None:
            from numba import njit as numba_njit

            function = cast(FunctionType, self.function)
            names = {
                name: value.compile() if isinstance(value, Kernel) else value
                for name, value in function.__globals__.items()
                if name in function.__code__.co_names or not isinstance(value, Kernel)
            }
            bound = FunctionType(
                function.__code__,
                names,
                function.__name__,
                function.__defaults__,
                function.__closure__,
            )
            bound.__module__, bound.__qualname__ = function.__module__, function.__qualname__
            self._compiled = numba_njit(**self._options)(bound)
        return self._compiled


def njit(
    *, small: int = SMALL_ELEMENTS, **options: Any
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator like Numba's; up to ``small`` elements are handled without compiling."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return cast("Callable[P, R]", Kernel(function, small, options))

    return decorate
