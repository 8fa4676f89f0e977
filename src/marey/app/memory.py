"""Give memory that is no longer used back to the machine."""

from __future__ import annotations

import ctypes
import gc
import mmap
from pathlib import Path

import pyarrow as pa

# As in malloc.h.
M_MMAP_THRESHOLD = -3
LARGE_BLOCK_BYTES = 1 << 18
_COMPILER = "/libllvmlite.so"


def give_back() -> None:
    """Return freed memory: making a history or rebuilding sketches leaves large holes behind."""
    gc.collect()
    trim()


def trim() -> None:
    """Return what is free already, in a few milliseconds: between the parts of long work."""
    pa.default_memory_pool().release_unused()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        # Another C library than glibc: nothing to trim, or it does so by itself.
        return
    _let_compiler_go()


def _let_compiler_go() -> None:
    """Unmap the pages of the compiler's code: kernels are loaded through it once, 60 MB of it.

    They are the file's own pages, never written to; whoever needs one again finds it there.
    """
    library = ctypes.CDLL(None)
    for begin, end in _code_of(_COMPILER):
        library.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)


def _code_of(library: str) -> list[tuple[int, int]]:
    """Where the code of a library is mapped: read and executed, private and never written."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        # Not Linux.
        return []
    spans = []
    for line in lines:
        span, rights, *_, name = line.split(maxsplit=5)
        if rights == "r-xp" and name.endswith(library):
            begin, end = (int(part, 16) for part in span.split("-"))
            spans.append((begin, end))
    return spans


def return_large_blocks() -> None:
    """Let blocks above 256 KiB go back to the machine as soon as they are freed.

    By itself glibc raises that limit to 32 MiB with the first large block, and keeps what rules
    compute each minute in holes of its heap: some 120 MB at 10,000 GPUs.
    """
    try:
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
    except (OSError, AttributeError):
        # Another C library than glibc has its own ways.
        return
