"""Findings as they are kept: documents of the store, with mutes; the questions about them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from marey.app.queries.table_queries import query_of, within
from marey.app.queries.workspace import Workspace
from marey.app.rules.finding_documents import (
    FindingDocument,
    FindingList,
    WasteLine,
    WasteStep,
    WasteSums,
)
from marey.live.summary import STEP_MS as SUMMARY_STEP_MS
from marey.model.access.current import current_identity
from marey.model.errors import InvalidInput, NotFound, TooLarge, shown, unknown
from marey.model.names import DEFAULT_CLUSTER
from marey.model.protocols import Store
from marey.model.times import DAY_MS, HOUR_MS
from marey.notify.notices import Notice
from marey.rules.engine.findings import Comment, Finding
from marey.rules.ownership import is_personal_of_another
from marey.rules.waste import WasteBy, waste_csv, wasted

KIND, MUTE_KIND = "finding", "mute"
COMMENT_LIMIT = 4_000
COMMENTS_LIMIT = 1_000
FINDINGS_BOUNDS = (1, 100_000)
SCOPES = ("workload", "user", "project", "rule")


class Mute(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody is notified of findings that match, until then, for a stated reason."""

    id: str
    scope: str
    value: str
    why: str
    by: str = ""
    rule: str = ""
    until_ms: int | None = None
    since_ms: int = 0

    def covers(self, finding: Finding | Notice, now_ms: int) -> bool:
        """Return whether the finding, or its notice, is muted at this moment."""
        in_time = self.until_ms is None or now_ms < self.until_ms
        same_rule = not self.rule or self.rule == finding.rule
        return in_time and same_rule and getattr(finding, self.scope) == self.value


class FindingStore:
    """Findings and mutes in the store's documents; safe from several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        # What people said since this was made: whoever judges may not have heard of it.
        self._said: dict[str, tuple[Comment | None, list[Comment]]] = {}

    def all(self, cluster: str | None = None) -> list[Finding]:
        """Return every finding that was ever kept."""
        found = [
            msgspec.convert(document, Finding, str_keys=True)
            for document in self._store.documents(KIND).values()
        ]
        return [f for f in found if cluster is None or f.cluster == cluster]

    def list_shown(self, cluster: str | None = None) -> list[Finding]:
        """Return the findings without those of others' personal rules, for whoever is asking."""
        user = current_identity().user
        return [f for f in self.all(cluster) if not is_personal_of_another(f.rule, user)]

    def get(self, name: str) -> Finding:
        """Return one finding by its id; raises ``NotFound``."""
        found = msgspec.convert(self._store.document(KIND, name), Finding, str_keys=True)
        if is_personal_of_another(found.rule, current_identity().user):
            raise NotFound(f"There is no finding '{shown(name)}'.")
        return found

    def save(self, findings: Iterable[Finding]) -> None:
        """Keep findings as they are now, without losing what people said of them meanwhile."""
        with self._lock:
            self._put(list(findings))

    def _put(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            said = (finding.acknowledged, finding.comments)
            finding.acknowledged, finding.comments = self._said.get(finding.id, said)
        if findings:
            named = {f.id: msgspec.to_builtins(f, str_keys=True) for f in findings}
            self._store.put_documents(KIND, named)

    def drop(self, names: Iterable[str]) -> None:
        """Forget findings that turned out to be none, unless somebody has said something."""
        with self._lock:
            known = self._store.documents(KIND)
            for name in names:
                if name in known and name not in self._said:
                    self._store.delete_document(KIND, name)

    def add_comment(
        self, name: str, text: str, by: str, now_ms: int, *, acknowledge: bool
    ) -> Finding:
        """Comment on a finding, or acknowledge it."""
        if (not text.strip() and not acknowledge) or len(text) > COMMENT_LIMIT:
            raise InvalidInput(f"A comment has 1 to {COMMENT_LIMIT} characters.")
        with self._lock:
            finding = self.get(name)
            comment = Comment(now_ms, by, text)
            if not acknowledge and len(finding.comments) >= COMMENTS_LIMIT:
                # Dropping the oldest would let anybody remove what others have said.
                raise TooLarge(f"This finding has {COMMENTS_LIMIT} comments, the most allowed.")
            if acknowledge:
                finding.acknowledged = comment
            else:
                finding.comments = [*finding.comments, comment]
            self._said[name] = (finding.acknowledged, finding.comments)
            self._put([finding])
            return finding

    def mutes(self) -> list[Mute]:
        """Return every mute, in force or over."""
        return [msgspec.convert(d, Mute) for d in self._store.documents(MUTE_KIND).values()]

    def mute(self, mute: Mute) -> None:
        """Keep a mute."""
        if mute.scope not in SCOPES:
            raise InvalidInput(unknown("scope", mute.scope, SCOPES))
        if not mute.value or not mute.why.strip():
            raise InvalidInput("A mute needs what it covers, and why.")
        self._store.put_document(MUTE_KIND, mute.id, msgspec.to_builtins(mute))

    def unmute(self, name: str) -> None:
        """Forget a mute; raises ``NotFound``."""
        self._store.delete_document(MUTE_KIND, name)


def make_finding_document(finding: Finding, mutes: Sequence[Mute], now_ms: int) -> FindingDocument:
    """Return a finding as the API and the command line show it."""
    return FindingDocument(
        **msgspec.structs.asdict(finding),
        open=finding.is_open,
        opened_ms=finding.opened_ms,
        closed_ms=finding.episodes[-1].closed_ms if finding.episodes else None,
        gpu_hours=round(finding.gpu_hours, 3),
        muted=any(mute.covers(finding, now_ms) for mute in mutes),
    )


@dataclass(frozen=True)
class AskFindings:
    """Which findings there are or were."""

    cluster: str = DEFAULT_CLUSTER
    state: str = ""
    workload: str = ""
    rule: str = ""
    user: str = ""
    project: str = ""
    limit: int = 1000

    def ask(self, workspace: Workspace) -> FindingList:
        """Open ones first, then the newest."""
        within("limit", self.limit, *FINDINGS_BOUNDS)
        if self.state not in ("", "open", "closed"):
            raise InvalidInput(unknown("state", self.state, ["open", "closed"]))
        # Asked first: what is found while we read may be missing below.
        preparing = workspace.preparing(self.cluster)
        kept = FindingStore(workspace.store)
        now_ms, mutes = workspace.now_ms(), kept.mutes()
        fields = ("workload", "rule", "user", "project")
        found = [
            finding
            for finding in kept.list_shown(self.cluster)
            if all(not (w := getattr(self, n)) or getattr(finding, n) == w for n in fields)
            and (not self.state or finding.is_open == (self.state == "open"))
        ]
        found.sort(key=lambda f: (not f.is_open, -f.opened_ms, f.id))
        rows = [make_finding_document(f, mutes, now_ms) for f in found[: self.limit]]
        share = workspace.share_read(self.cluster) if preparing else None
        return FindingList(rows, total=len(found), preparing=preparing, share_read=share)

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/findings"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)


@dataclass(frozen=True)
class AskWaste:
    """GPU-hours wasted over a period, summed by something."""

    by: str = "user"
    cluster: str = DEFAULT_CLUSTER
    from_ms: int | None = None
    to_ms: int | None = None

    def ask(self, workspace: Workspace) -> WasteSums:
        """Return the lines, most first; seven days unless a span is given."""
        if self.by not in list(WasteBy):
            raise InvalidInput(unknown("sum", self.by, list(WasteBy)))
        preparing = workspace.preparing(self.cluster)
        to_ms = workspace.now_ms() if self.to_ms is None else self.to_ms
        from_ms = to_ms - 7 * DAY_MS if self.from_ms is None else self.from_ms
        findings = FindingStore(workspace.store).list_shown(self.cluster)
        lines = wasted(findings, WasteBy(self.by), from_ms, to_ms)
        rows = [
            WasteLine(
                name=line.name,
                gpu_hours=round(line.gpu_hours, 3),
                findings=line.findings,
                workloads=line.workloads,
            )
            for line in lines
        ]
        return WasteSums(
            rows=rows,
            csv=waste_csv(lines, WasteBy(self.by)),
            by=WasteBy(self.by),
            preparing=preparing,
            share_read=workspace.share_read(self.cluster) if preparing else None,
            from_ms=from_ms,
            to_ms=to_ms,
            trend=compute_waste_trend(workspace, self.cluster, findings, (from_ms, to_ms)),
        )

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/waste"

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return query_of(self)


def compute_waste_trend(
    workspace: Workspace, cluster: str, findings: Sequence[Finding], span: tuple[int, int]
) -> list[WasteStep]:
    """Return allocated and wasted GPU time over time, in some forty steps."""
    step_ms = next((s for s in _STEPS_MS if (span[1] - span[0]) / s <= TREND_STEPS), _STEPS_MS[-1])
    allocated: dict[int, float] = defaultdict(float)
    for row in workspace.summaries.rows(cluster, *span):
        allocated[row["time_ms"] // step_ms] += row["allocated"] * SUMMARY_STEP_MS / HOUR_MS
    steps = range(span[0] // step_ms, (span[1] - 1) // step_ms + 1)
    trend = []
    for step in steps:
        begin, end = max(step * step_ms, span[0]), min((step + 1) * step_ms, span[1])
        lost = sum(line.gpu_hours for line in wasted(findings, WasteBy.WORKLOAD, begin, end))
        trend.append(WasteStep(step * step_ms, round(allocated[step], 2), round(lost, 2)))
    return trend


TREND_STEPS = 48
_STEPS_MS = (HOUR_MS, 4 * HOUR_MS, DAY_MS, 7 * DAY_MS)
