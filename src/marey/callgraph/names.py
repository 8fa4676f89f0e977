"""Names of call sites, made equal where only an address or a counter tells them apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# Text from a profile is hostile: a longer name is cut, so that no node can hold a megabyte.
LONGEST_NAME = 4096

_ADDRESS = re.compile(r"0[xX][0-9a-fA-F]+")
_COUNTER = re.compile(r"#[0-9]+")
# What would break a line of text or a terminal: control and bidirectional characters.
_HOSTILE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def normalise_name(text: str, aliases: Mapping[str, str] | None = None) -> str:
    """Return the name without addresses (``0x``), counters (``#``) and control characters.

    ``aliases`` replaces texts by others: ``{"FSDPLM": "LM"}`` unites the modules that a wrapper
    renamed with those of a run without it.
    """
    text = text[:LONGEST_NAME]
    for old, new in (aliases or {}).items():
        text = text.replace(old, new)
    if "0x" in text or "0X" in text:
        text = _ADDRESS.sub("0x", text)
    if "#" in text:
        text = _COUNTER.sub("#", text)
    if not text.isprintable():
        text = _HOSTILE.sub("\ufffd", text)
    return text or "(no name)"


def normalise_names(texts: Iterable[str], aliases: Mapping[str, str] | None = None) -> list[str]:
    """Return every name normalised, in the same order."""
    return [normalise_name(text, aliases) for text in texts]


_WAITING = re.compile(
    r"^MPI_(Wait|Barrier|Allreduce|Reduce|Bcast|Allgather|Alltoall|Recv|Probe|Test)"
    r"|\bwait(_|\b)|synchroni[sz]e|\bbarrier\b|run_backward|\bjoin\b|\bacquire\b|\bpoll\b"
    r"|all_?reduce|all_?gather|reduce_?scatter|\bnccl|\bgloo:",
    re.IGNORECASE,
)


def is_waiting(name: str) -> bool:
    """Return whether a call of this name mostly waits for others.

    Much time there points elsewhere.
    """
    return _WAITING.search(name) is not None
