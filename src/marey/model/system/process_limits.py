"""How much memory and computing time a child process may take before the system refuses more."""

from __future__ import annotations

import os
import resource

GIGABYTE = 1 << 30
# Half of the machine, so that the server beside it goes on; never less than a small run needs.
LEAST_MEMORY_BYTES = 2 * GIGABYTE
MOST_MEMORY_BYTES = 64 * GIGABYTE
# A run of a thousand ranks takes minutes; whatever takes longer than this will not end.
WORK_SECONDS = 3600


def choose_memory_limit() -> int:
    """Return how many bytes one child of this machine's server may take."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(LEAST_MEMORY_BYTES, min(machine // 2, MOST_MEMORY_BYTES))


def limit_this_process(memory_bytes: int, cpu_seconds: int) -> None:
    """Have this process fail instead of taking more than this.

    Memory is what it may write to itself (``RLIMIT_DATA``): files that are mapped for reading, and
    addresses that are reserved and not used, do not count.
    """
    for kind, wanted in ((resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_CPU, cpu_seconds)):
        _, hard = resource.getrlimit(kind)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (most, hard))
