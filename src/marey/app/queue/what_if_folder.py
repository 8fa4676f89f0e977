"""Answer what another policy would have done with the jobs of a history folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marey.app.queue.histories.history import read_history, read_policy
from marey.queue.policy.what_if import compute_what_if


def answer_what_if(
    history: Path, policy: Path, *, current: Path | None = None, unchecked: bool = False
) -> dict[str, Any]:
    """Return the waits of the recorded jobs under a policy file, beside those of the recorded
    policy (or of ``current``, where the history does not tell it).
    """
    jobs, recorded = read_history(history)
    if current is not None:
        recorded = read_policy(current, recorded)
    return compute_what_if(jobs, read_policy(policy, recorded), recorded, unchecked=unchecked)
