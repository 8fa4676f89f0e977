"""Why work failed, where the scheduler's own words say that it was not the program."""

from __future__ import annotations

import re
from dataclasses import dataclass

from marey.model.faults import FaultKind


@dataclass(frozen=True, slots=True)
class ReportedEnd:
    """A reason in words: what ended the work, how surely, and what helps."""

    kind: FaultKind
    text: str
    confidence: float
    next: str


_K = FaultKind
# What is said to be the cause, and may be only its sign.
_GUESS = 0.55
_RESTART = "Start it again from the last checkpoint."
# Looked for in this order, in the scheduler's words and in them without blanks and underlines.
_NODE_ENDS: tuple[tuple[str, ReportedEnd], ...] = (
    (r"node ?shutdown|nodelost|imminent node shutdown", ReportedEnd(
        _K.NODE_FAILURE, "Its node was shut down or lost.", 0.9,
        f"{_RESTART} Ask the administrators about the node.")),
    (r"taintmanager|noexecute|podgc|orphan", ReportedEnd(
        _K.NODE_FAILURE, "It was removed because its node was lost or closed to work.", 0.8,
        f"{_RESTART} Look at the node's taints and conditions.")),
)  # fmt: skip
_ENDS: tuple[tuple[str, ReportedEnd], ...] = (
    (r"unexpectedadmissionerror", ReportedEnd(
        _K.NODE_FAILURE, "The node could not give it its devices.", 0.8,
        "Look at the node's device plugin and at its GPUs; submit again without the node.")),
    (r"^outof\w.*:|^outof[\w./-]+$|nodeaffinity|nodeports", ReportedEnd(
        _K.NODE_FAILURE, "The node that was chosen for it would not take it.", _GUESS,
        "Submit it again; look at what else the node had admitted by then.")),
    (r"containerstatusunknown", ReportedEnd(
        _K.NODE_FAILURE, "Its node lost track of its container: a restart or an eviction.", _GUESS,
        "Look at the events of the node around the end.")),
    (r"containercannotrun|starterror|createcontainer|runcontainererror|invalidimage|imagepull",
     ReportedEnd(
        _K.SCRIPT_ERROR, "Its container could not be started.", 0.85,
        "Check the image, the command and the mounts.")),
    (r"bootfail|launchfail|prolog", ReportedEnd(
        _K.NODE_FAILURE, "A node could not start it.", 0.85,
        "Have the node drained and checked; submit again without it.")),
    (r"nodedown|nodefail", ReportedEnd(
        _K.NODE_FAILURE, "One of its nodes failed under it.", 0.8,
        f"{_RESTART} Have the node checked.")),
    (r"inactivelimit", ReportedEnd(
        _K.TIME_LIMIT, "It was ended because it did nothing for longer than is allowed.", _GUESS,
        "Ask the administrators about InactiveLimit.")),
    (r"timelimit|deadline", ReportedEnd(
        _K.TIME_LIMIT, "It was ended at its time limit.", 0.9,
        "Ask for more time, or write checkpoints and continue from the last one.")),
    (r"systemfail|burstbuffer|fedjoblock|stageinfail|stageoutfail", ReportedEnd(
        _K.NODE_FAILURE, "The cluster failed it, not the program.", _GUESS,
        "Ask the administrators; submit it again.")),
    (r"badconstraints|joblimit|usagethreshold|invalidaccount|invalidqos|reservationdeleted|"
     r"accountnotallowed|qosnotallowed", ReportedEnd(
        _K.CANCELLED, "The scheduler refused to go on with it.", _GUESS,
        "Correct what it asked for: account, QOS, reservation or constraint.")),
)  # fmt: skip
# "oom" stands inside of room and zoom too. "OutOfmemory: Node didn't have enough resource" is a
# node that would not take it, not memory that ran out.
_MEMORY = re.compile(
    r"oomkill|(?<![a-z])oom(?![a-z])|out[ _]?of[ _]?memory(?!: *(?:node|pod))", re.IGNORECASE
)
_OTHER_PRESSURE = re.compile(r"ephemeral|disk ?pressure|inode|pid ?pressure|emptydir")


def find_lost_node(said: str) -> ReportedEnd | None:
    """Return an end that is the node's, although it may be called an eviction."""
    return _find(said, _NODE_ENDS)


def find_reported_end(said: str) -> ReportedEnd | None:
    """Return the reported cause of a failure, if it was not the program."""
    return _find(said, _ENDS)


def is_out_of_memory(said: str) -> bool:
    """Return whether the host's memory ran out, as the scheduler says."""
    return _MEMORY.search(said) is not None


def is_memory_eviction(said: str) -> bool:
    """Return whether a node evicted it to have memory again."""
    lower = said.lower()
    return "evict" in lower and "memory" in lower and _OTHER_PRESSURE.search(lower) is None


def _find(said: str, listed: tuple[tuple[str, ReportedEnd], ...]) -> ReportedEnd | None:
    lower = said.strip().lower()
    flat = lower.replace("_", "").replace(" ", "")
    for pattern, meaning in listed:
        if re.search(pattern, lower) or re.search(pattern, flat):
            return meaning
    return None
