"""Use against share per project, and where the shares come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from marey.queue.waiting.line import Waiter


class SharesFrom(StrEnum):
    """Who says what each project is meant to have."""

    EQUAL = "equal"
    CONFIGURATION = "configuration"
    SCHEDULER = "scheduler"
    # There are shares, but whoever asks does not see whole projects.
    WITHHELD = "withheld"


SENTENCES: Mapping[SharesFrom, str] = {
    SharesFrom.EQUAL: "Equal shares: none configured, none from the scheduler.",
    SharesFrom.CONFIGURATION: "Shares from [queue.shares] in marey.toml.",
    SharesFrom.SCHEDULER: "The scheduler's own shares (for Slurm: sshare).",
    SharesFrom.WITHHELD: (
        "Equal shares: this site's privacy mode does not show you whole projects, "
        "so their shares say nothing here."
    ),
}


@dataclass(frozen=True, slots=True)
class SiteShares:
    """What each project is meant to have, as weights; empty: all the same."""

    weights: Mapping[str, float] = field(default_factory=dict)
    origin: SharesFrom = SharesFrom.EQUAL

    @property
    def sentence(self) -> str:
        """Where the shares come from, in words."""
        return SENTENCES[self.origin]


@dataclass(frozen=True, slots=True)
class ProjectShare:
    """A project's GPU-hours over a period against its share of the waiting and the used."""

    project: str
    gpu_hours: float
    used_share: float
    fair_share: float
    waiting_gpus: int
    # Used over fair: above 1 it had more than its share; none where it has no share.
    ratio: float | None


def measure_fairness(
    gpu_hours: Mapping[str, float], waiters: Sequence[Waiter], weights: Mapping[str, float]
) -> list[ProjectShare]:
    """Return use against share per project, the largest use first; without weights all are equal.

    With weights, a project that has a share and used nothing is listed too, and one that is not
    named has no share.
    """
    waiting: dict[str, int] = {}
    for waiter in waiters:
        waiting[waiter.project] = waiting.get(waiter.project, 0) + waiter.gpus
    projects = sorted({*gpu_hours, *waiting, *weights})
    given = weights or dict.fromkeys(projects, 1.0)
    used, meant = sum(gpu_hours.values()), sum(given.values())
    rows = []
    for project in projects:
        fair = given.get(project, 0.0) / meant
        share = gpu_hours.get(project, 0.0) / used if used else 0.0
        rows.append(
            ProjectShare(
                project=project,
                gpu_hours=gpu_hours.get(project, 0.0),
                used_share=share,
                fair_share=fair,
                waiting_gpus=waiting.get(project, 0),
                ratio=share / fair if fair else None,
            )
        )
    return sorted(rows, key=lambda row: (-row.gpu_hours, -row.fair_share))
