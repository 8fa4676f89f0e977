"""How the kernels of the passes are compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def njit(*, inlined: bool = False) -> Callable[[Kernel], Kernel]:
    """Return a decorator that compiles a function without counting references to its arrays.

    Its arrays live as long as the caller's, and it must not make any: counting at every call took
    most of a replay's time, because a site is dozens of arrays. What is called at every event is
    put into its caller (``inlined``): handing the dozens over took half of what was left.
    """
    options: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False, "forceinline": inlined}

    def decorate(function: Kernel) -> Kernel:
        name = function.__qualname__
        # Numba names its cached file by this and looks only at the age of the function's own
        # module: without the digest it would keep what other kernels were before they changed.
        function.__qualname__ = f"{name}_{_digest_sources(function.__code__.co_filename)}"
        compiled: Kernel = numba.njit(**options)(function)
        function.__qualname__ = name
        return compiled

    return decorate


@cache
def _digest_sources(path: str) -> str:
    """Return a digest of all the kernels of the passes and of one module beside them."""
    sources = sorted({Path(path), *Path(__file__).parent.glob("*.py")})
    text = b"".join(source.read_bytes() for source in sources)
    return hashlib.sha256(text).hexdigest()[:12]
