"""What another policy would have done with a cluster's own recorded workloads."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from marey.app.queries.table_queries import within
from marey.app.queries.workspace import Workspace
from marey.app.queue.live_line import read_line
from marey.app.queue.queue_documents import ComparedWaits, PolicyAnswer, PolicyDocument
from marey.app.queue.queue_queries import QueueQuestion
from marey.app.queue.site_history import read_site_history
from marey.model.errors import InvalidInput, shown
from marey.model.names import DEFAULT_CLUSTER
from marey.queue.policy.gains_and_losses import describe_size, judge_change, mean_wait
from marey.queue.policy.inferred_policy import MULTIFACTOR_WEIGHTS, infer_policy
from marey.queue.policy.policy import parse_policy
from marey.queue.policy.policy_replay import REPLAYS, replay_policy, select_schedule
from marey.queue.policy.recorded_jobs import UNKNOWN_MS
from marey.queue.policy.what_if import (
    LowFidelity,
    check_fidelity,
    compare_replays,
    list_doubts,
    score_replay,
)

# Someone waits for the answer: many jobs average the small delays out with fewer replays.
_REPLAYED_JOBS = 10_000
DAYS_BOUNDS = (1, 90)


@dataclass(frozen=True)
class AskPolicy(QueueQuestion):
    """What another policy would have done with a partition's own workloads."""

    PATH: ClassVar[str] = "/queue-whatif"
    partition: str = ""
    days: int = 7
    order: str = "fifo"
    backfill: str = "easy"
    placement: str = "most_allocated"
    favor_small: bool = False
    add_hosts: int = 0
    # More or fewer of this GPU model; "" is any.
    add_model: str = ""
    # A whole policy as JSON; it stands in place of the settings above.
    policy: str = ""
    cluster: str = DEFAULT_CLUSTER

    def __post_init__(self) -> None:
        within("days", self.days, *DAYS_BOUNDS)

    def ask(self, workspace: Workspace) -> PolicyAnswer:
        """Replay the recorded policy, then this one; below the stated fidelity say only that."""
        partition = self.partition or find_busiest_partition(workspace, self.cluster)
        history = read_site_history(workspace, self.cluster, partition, self.days)
        whole, current, _ = infer_policy(history.jobs, history.reported, history.priority)
        policy = parse_policy(self._make_document(), current)
        # Who ran already when the record began waits under no policy.
        chosen = history.asked & whole.counted & (whole.start_ms != UNKNOWN_MS)
        jobs = whole.select(chosen)
        replays = max(1, min(REPLAYS, _REPLAYED_JOBS // len(whole)))
        now = select_schedule(replay_policy(whole, current, replays=replays), chosen)
        fidelity = score_replay(jobs, now)
        then, refused = now, ""
        try:
            check_fidelity(fidelity)
            then = select_schedule(replay_policy(whole, policy, replays=replays), chosen)
        except LowFidelity as error:
            refused = str(error)
        compared = {} if refused else compare_replays(jobs, now, then)
        return PolicyAnswer(
            partition=partition,
            jobs=len(jobs),
            policy=PolicyDocument(policy.order, policy.backfill, policy.placement),
            current=PolicyDocument(current.order, current.backfill, current.placement),
            recorded_mean_wait_s=_keep_finite(fidelity["recorded_mean_wait_s"]),
            replayed_mean_wait_s=_keep_finite(fidelity["replayed_mean_wait_s"]),
            current_mean_wait_s=mean_wait(now.wait_s),
            error=_keep_finite(fidelity["error"]),
            near=fidelity["near"],
            refused=refused,
            mean_wait_s=mean_wait(then.wait_s) if compared else None,
            p90_wait_s=compared.get("p90_wait_s"),
            utilization=compared.get("utilization"),
            current_utilization=now.utilization,
            stranded=compared.get("stranded"),
            current_stranded=now.stranded,
            evictions=compared.get("evictions", 0.0),
            lost_gpu_hours=compared.get("lost_gpu_hours", 0.0),
            never_start=int(np.isnan(then.wait_s).sum()) if compared else 0,
            losses=compared.get("losses", []),
            gains=compared.get("gains", []),
            notes=[*jobs.notes, *([] if refused else list_doubts(fidelity))],
            by_size=_list_compared(compared, "by_size", "gpus_from"),
            by_user=_list_compared(compared, "by_owner", "owner")[:20],
            by_project=_list_compared(compared, "by_project", "project")[:20],
        )

    def _make_document(self) -> dict[str, Any]:
        """Return the asked policy as a document; what it leaves open stays as it is."""
        if self.policy:
            try:
                found = json.loads(self.policy)
            except ValueError as error:
                raise InvalidInput(f"The policy is not JSON: {shown(str(error))}") from error
            return found if isinstance(found, dict) else {"": found}
        document: dict[str, Any] = {
            "order": self.order,
            "backfill": self.backfill,
            "placement": self.placement,
            "favor_small": self.favor_small,
            "weights": MULTIFACTOR_WEIGHTS if self.order == "multifactor" else {},
        }
        if self.add_hosts:
            document["add_hosts"] = [{"count": self.add_hosts, "model": self.add_model}]
        return document


def _list_compared(compared: dict[str, Any], part: str, name: str) -> list[ComparedWaits]:
    return [
        ComparedWaits(
            name=describe_size(row[name]) if name == "gpus_from" else str(row[name]),
            jobs=row["jobs"],
            mean_wait_now_s=row["mean_wait_now_s"],
            mean_wait_s=row["mean_wait_s"],
            change_s=row["change_s"],
            p90_wait_now_s=row["p90_wait_now_s"],
            p90_wait_s=row["p90_wait_s"],
            never_start=row["never_start"],
            verdict=judge_change(row),
        )
        for row in compared.get(part, ())
    ]


def find_busiest_partition(workspace: Workspace, cluster: str) -> str:
    """Return the partition that most workloads wait for, or the first there is."""
    line = read_line(workspace, cluster)
    asked: Counter[str] = Counter()
    for waiter in line.waiters:
        asked[waiter.partition] += 1
    names = sorted({p for host in line.hosts for p in host.partitions})
    known = [name for name, _ in asked.most_common() if name in names]
    return (known or names or [""])[0]


def _keep_finite(value: float) -> float | None:
    """Return a number, or nothing where no recorded start lets one compute it."""
    return value if np.isfinite(value) else None
