"""Records as somebody sees them: real, under made-up names, or not at all."""

from __future__ import annotations

from dataclasses import dataclass, replace

from marey.model.access.pseudonyms import NameKind, Pseudonyms
from marey.model.access.scope import Scope
from marey.model.workloads import Workload


@dataclass(frozen=True, slots=True)
class RecordMask:
    """A scope with the names that it shows."""

    scope: Scope
    pseudonyms: Pseudonyms

    def knows(self, user: str | None, project: str | None) -> bool:
        """Return whether work of this user and project is shown under its real names."""
        return self.scope.knows(user or "", project or "")

    def show_workload(self, workload: Workload) -> Workload | None:
        """Return the workload as it is shown: itself, masked, or None."""
        if self.knows(workload.user, workload.project):
            return workload
        return None if self.scope.hides else self.mask_workload(workload)

    def mask_workload(self, workload: Workload) -> Workload:
        """Return a workload of which only the shape is left."""
        return replace(
            workload,
            workload=self.show_id(workload.workload),
            name="",
            user=self.show_user(workload.user),
            project=self.show_project(workload.project),
            experiment="",
            qos="",
            attributes={},
        )

    def show_reason(self, reason: str | None) -> str:
        """Return why somebody else's workload waits or failed: a scheduler's word, no sentence."""
        return self.pseudonyms.keep_word(reason) if reason and reason.isalnum() else ""

    def show_user(self, user: str | None) -> str:
        """Return the shown name of a user."""
        if not user or user == self.scope.user:
            return user or ""
        return self.pseudonyms.make(NameKind.USER, user)

    def show_project(self, project: str | None) -> str:
        """Return the shown name of the project of somebody else's work."""
        return self.pseudonyms.make(NameKind.PROJECT, project or "")

    def show_id(self, workload: str) -> str:
        """Return the shown id of somebody else's workload."""
        return self.pseudonyms.make(NameKind.WORKLOAD, workload)
