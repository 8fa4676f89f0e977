"""Why a machine is out of service, for people who may not read what others wrote about it."""

from __future__ import annotations

import re
from functools import lru_cache

# Instead of a sentence that may name anybody.
WITHHELD_REASON = "Operators can see the reason."

# What programs say by themselves; whatever follows is left out.
_PHRASES = (
    r"XID \d{1,4}(?: on GPU \d{1,3})?",
    r"not responding",
    r"not ready",
    r"cordoned",
    r"node unexpectedly rebooted",
    r"kill task failed",
    r"(?:prolog|epilog) (?:error|failed)",
    r"low (?:realmemory|socket\*core\*thread count|cpus|tmpdisk)",
    r"gres/gpu count reported lower than configured",
    r"KubeletNotReady",
    r"NodeStatusUnknown",
    r"none of its \d+ GPUs may be handed out",
    r"the node has not said whether it is ready",
)
_KNOWN = re.compile(rf"(?:{'|'.join(_PHRASES)})(?![\w-])", re.IGNORECASE)
_MOMENT = r"(?:\?|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)"
_RESERVED = re.compile(rf"(maintenance|reservation) [^;]*?, ({_MOMENT} to {_MOMENT})(?![\w-])")


@lru_cache(4096)
def show_machine_text(text: str) -> str:
    """Return the part of a text about a machine that can name nobody.

    That is a program's own words, and when a reservation begins and ends; not for whom it is, nor
    what an operator typed.
    """
    if not text:
        return text
    spans = [f"{kind}, {span}" for kind, span in _RESERVED.findall(text)]
    if spans and text.startswith(("maintenance ", "reservation ")):
        return "; ".join(spans)
    known = _KNOWN.match(text)
    return known.group() if known else WITHHELD_REASON
