"""Give memory that is no longer used back to the machine."""

from __future__ import annotations

import ctypes
import gc

import pyarrow as pa


def give_back() -> None:
    """Return freed memory: making a history or rebuilding sketches leaves large holes behind."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        # Another C library than glibc: nothing to trim, or it does so by itself.
        return
