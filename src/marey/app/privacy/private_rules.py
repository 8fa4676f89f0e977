"""Rules, findings and notices as a scope sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from marey.app.privacy.masked_tables import TableMask
from marey.app.privacy.private_store import PrivateStore
from marey.app.rules.finding_documents import Notifications
from marey.app.rules.finding_store import FindingStore, Mute
from marey.app.rules.notifications import Notifier
from marey.app.rules.rule_documents import RuleDetail, RuleRow
from marey.app.rules.rule_store import RuleStore
from marey.app.rules.rule_watch import RuleWatch
from marey.model.access.record_mask import RecordMask
from marey.rules.definition import Rule
from marey.rules.engine.evaluation_loop import EvaluationLoop
from marey.rules.engine.findings import Finding

RowT = TypeVar("RowT", bound=RuleRow)


class PrivateFindings(FindingStore):
    """Findings of work that is shown; what people say of them goes to the one book."""

    def __init__(self, whole: FindingStore, store: PrivateStore) -> None:
        super().__init__(store)
        self._whole = whole
        self._private = store

    def add_comment(
        self, name: str, text: str, by: str, now_ms: int, *, acknowledge: bool
    ) -> Finding:
        """Comment on a finding that is shown, or acknowledge it."""
        real = self._private.find_document("finding", name)
        self._whole.add_comment(real, text, by, now_ms, acknowledge=acknowledge)
        return self.get(name)

    def save(self, findings: Iterable[Finding]) -> None:
        """Leave keeping findings to whoever judges."""
        self._whole.save(findings)

    def drop(self, names: Iterable[str]) -> None:
        """Leave forgetting findings to whoever judges."""
        self._whole.drop(names)

    def mute(self, mute: Mute) -> None:
        """Keep a mute."""
        self._whole.mute(mute)


class PrivateRuleWatch(RuleWatch):
    """The live watch, asked by a scope: it judges nothing itself."""

    def __init__(self, whole: RuleWatch, store: PrivateStore, mask: TableMask) -> None:
        self._whole = whole
        self._private = store
        self._mask = mask
        # What windows are filled from: the evaluator is everybody's.
        self.store = whole.store
        self.findings = PrivateFindings(whole.findings, store)

    def show_workloads(self, cluster: str, workloads: Sequence[str]) -> list[str | None]:
        """Return the shown id of each workload; None where it is not shown."""
        shown = self._mask.show_ids(cluster, workloads)
        return [shown.get(name) for name in workloads]

    def find_workload(self, cluster: str, workload: str) -> str | None:
        """Return the workload that is called so; None where none is shown."""
        return self._private.find_workload(cluster, workload)

    @contextmanager
    def loop(self, cluster: str) -> Iterator[EvaluationLoop]:
        """Yield a cluster's loop, for as long as it is read."""
        with self._whole.loop(cluster) as loop:
            yield loop

    @property
    def loops(self) -> dict[str, EvaluationLoop]:
        """The loop of every cluster that is watched."""
        return self._whole.loops

    def share_read(self, cluster: str) -> float | None:
        """Return how much of the past (0-1) the rules have read."""
        return self._whole.share_read(cluster)

    def preparing(self, cluster: str) -> bool:
        """Return whether a cluster has data that no loop has evaluated yet."""
        return self._whole.preparing(cluster)

    def reload(self) -> None:
        """Judge by the rules as they are now."""
        self._whole.reload()


class PrivateRuleStore(RuleStore):
    """Every rule, without what it says of projects that are not known."""

    def __init__(self, whole: RuleStore, record_mask: RecordMask) -> None:
        self._whole = whole
        self._record_mask = record_mask

    def all(self) -> list[Rule]:
        """Return the rules in force and those switched off."""
        return self._whole.all()

    def kept(self) -> list[Rule]:
        """Return the rules that were saved on this server."""
        return self._whole.kept()

    def get(self, name: str) -> Rule:
        """Return one rule by its id."""
        return self._whole.get(name)

    def origin(self, name: str) -> str:
        """Return where a rule comes from."""
        return self._whole.origin(name)

    def rows(self) -> list[RuleRow]:
        """Return every rule as lists show it."""
        return [self._strip(row) for row in self._whole.rows()]

    def row(self, name: str) -> RuleDetail:
        """Return one rule with everything that is known of it."""
        row = self._strip(self._whole.row(name))
        shown = [one for one in row.in_force_where if self._knows(one.project)]
        return msgspec.structs.replace(row, in_force_where=shown)

    def save(self, document: object, *, scope: str = "", project: str = "") -> RuleRow:
        """Keep a rule."""
        return self._strip(self._whole.save(document, scope=scope, project=project))

    def delete(self, name: str) -> None:
        """Forget a rule that was saved here."""
        self._whole.delete(name)

    def _strip(self, row: RowT) -> RowT:
        if not row.override:
            return row
        shown = [one for one in row.override if self._knows(one.project)]
        return msgspec.structs.replace(row, override=shown)

    def _knows(self, project: object) -> bool:
        return not isinstance(project, str) or self._record_mask.knows("", project)


class PrivateNotifier(Notifier):
    """Says nothing of who was notified of what: the subjects name workloads and users."""

    def __init__(self, whole: Notifier) -> None:
        self.settings = whole.settings

    def document(self) -> Notifications:
        """Return that there are none to be seen."""
        return Notifications(dry_run=self.settings.dry_run, receivers=[], waiting=[], log=[])
