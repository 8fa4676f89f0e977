"""Documents of the store as a scope sees them: findings, mutes, and what everybody may read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from marey.app.privacy.owners import WorkloadOwners
from marey.model.access.record_mask import RecordMask

# What is the same for everybody: rules, views (which know their owners), figures of the cluster.
PUBLIC_KINDS = frozenset({"rule", "rule-files", "view", "summary"})

Named = Mapping[str, Any]


class DocumentMask:
    """Documents by kind, without what a scope may not see; a kind that is not listed is withheld.

    So a new kind is private until somebody has said how it is shown.
    """

    def __init__(self, record_mask: RecordMask, owners: WorkloadOwners) -> None:
        self._record_mask = record_mask
        self._owners = owners
        self._by_kind: dict[str, Callable[[str, Named], tuple[str, Named] | None]] = {
            "finding": self._show_finding,
            "mute": self._show_mute,
        }

    def show(self, kind: str, named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the documents that are shown, as they are shown, by the names they are given."""
        if kind in PUBLIC_KINDS:
            return dict(named)
        show = self._by_kind.get(kind)
        if show is None:
            return {}
        shown = (show(name, document) for name, document in named.items())
        return dict(one for one in shown if one is not None)

    def find_name(self, kind: str, name: str, named: Mapping[str, Any]) -> str | None:
        """Return the real name of a document that is shown under this one."""
        if kind != "finding":
            return name
        return next((real for real in named if name in (real, self._rename(real))), None)

    def _show_finding(self, name: str, finding: Named) -> tuple[str, Named] | None:
        user, project = finding.get("user", ""), finding.get("project", "")
        if self._record_mask.knows(user, project):
            return name, self._rename_speakers(finding)
        if self._record_mask.scope.hides:
            return None
        said = finding.get("acknowledged")
        masked = {
            **finding,
            "id": self._rename(name),
            "workload": self._record_mask.show_id(finding["workload"]),
            "user": self._record_mask.show_user(user),
            "project": self._record_mask.show_project(project),
            "comments": [],
            "acknowledged": said and {**said, "by": "", "text": ""},
        }
        return masked["id"], masked

    def _rename(self, name: str) -> str:
        """Return another id: the real one is made of the workload's name and could be guessed."""
        return self._record_mask.pseudonyms.make_digest(name)[:8].hex()

    def _rename_speakers(self, finding: Named) -> Named:
        def rename(said: Named) -> Named:
            return {**said, "by": self._record_mask.show_user(said.get("by", ""))}

        acknowledged = finding.get("acknowledged")
        return {
            **finding,
            "acknowledged": rename(acknowledged) if acknowledged else None,
            "comments": [rename(said) for said in finding.get("comments", ())],
        }

    def _show_mute(self, name: str, mute: Named) -> tuple[str, Named] | None:
        scope, value = mute["scope"], mute["value"]
        if scope == "rule" or self._covers_own(scope, value):
            mine = mute.get("by", "") == self._record_mask.scope.user
            return name, mute if mine else {**mute, "by": "", "why": ""}
        return None

    def _covers_own(self, scope: str, value: str) -> bool:
        if scope == "user":
            return self._record_mask.knows(value, "")
        if scope == "project":
            return self._record_mask.knows("", value)
        owners = self._owners.find_anywhere(value)
        return any(self._record_mask.knows(user, project) for user, project in owners)
