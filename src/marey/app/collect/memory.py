"""Give memory that is no longer used back to the machine."""

from __future__ import annotations

import ctypes
import gc

import pyarrow as pa

# As in malloc.h.
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
LARGE_BLOCK_BYTES = 1 << 18
# While a history is made: columns of its blocks are taken again and again, a megabyte each.
HISTORY_BLOCK_BYTES = 1 << 22
ARENAS = 2


def give_back() -> None:
    """Give freed memory back to the machine.

    Making a history or rebuilding sketches leaves large holes behind.
    """
    gc.collect()
    trim()


def trim() -> None:
    """Give back what is free already, in a few milliseconds: between the parts of long work."""
    pa.default_memory_pool().release_unused()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        # Another C library than glibc: nothing to trim, or it does so by itself.
        return


def return_large_blocks(limit_bytes: int = LARGE_BLOCK_BYTES) -> None:
    """Let blocks above a limit (256 KiB) go back to the machine as soon as they are freed.

    By itself glibc raises that limit to 32 MiB with the first large block, and keeps what rules
    compute each minute in holes of its heap: some 120 MB at 10,000 GPUs.
    """
    try:
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, limit_bytes)
    except (OSError, AttributeError):
        # Another C library than glibc has its own ways.
        return


def limit_arenas() -> None:
    """Let all threads take memory from the same two arenas.

    By itself glibc gives nearly every thread that answers requests one of its own, up to eight
    per core, and each keeps what its largest answer left behind: some 400 MB after a look at
    every page of 2,048 GPUs.
    """
    try:
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
    except (OSError, AttributeError):
        # Another C library than glibc has its own ways.
        return
