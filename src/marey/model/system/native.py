"""The parts in C++, where they were built; whoever uses them has the same in Python too."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any


@cache
def native_module() -> Any | None:
    """Return the module built for this processor, or None where the package was installed without
    one.
    """
    try:
        general = importlib.import_module("marey._native")
    except ImportError:
        return None
    try:
        return importlib.import_module("marey._native_avx2") if general.has_avx2() else general
    except ImportError:
        return general
