"""Who is asking: a person or program, its role, and what that role permits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Permission(StrEnum):
    """What one route or message asks of whoever calls it."""

    # Look at what the site's privacy setting shows this identity.
    READ = "read"
    # One's own session and tokens.
    ACCOUNT = "account"
    # Report the progress of a workload.
    WRITE_PROGRESS = "progress:write"
    # Comment, acknowledge, upload traces and samples, keep personal views and rules.
    CONTRIBUTE = "contribute"
    # Change what everybody sees: site rules and views, mutes, policies, sources.
    OPERATE = "operate"
    # Users, tokens, sessions and the audit record.
    ADMINISTER = "admin"


class Role(StrEnum):
    """What a person is at this site; each role has all permissions of the one before."""

    VIEW_ONLY = "view-only"
    RESEARCHER = "researcher"
    OPERATOR = "operator"
    ADMIN = "admin"


_VIEW = frozenset({Permission.READ, Permission.ACCOUNT})
_RESEARCH = _VIEW | {Permission.WRITE_PROGRESS, Permission.CONTRIBUTE}
_OPERATE = _RESEARCH | {Permission.OPERATE}

ROLE_PERMISSIONS: dict[Role, frozenset[Permission]] = {
    Role.VIEW_ONLY: _VIEW,
    Role.RESEARCHER: _RESEARCH,
    Role.OPERATOR: _OPERATE,
    Role.ADMIN: _OPERATE | {Permission.ADMINISTER},
}


class Privacy(StrEnum):
    """Whose names and work somebody who is no operator sees."""

    OPEN = "open"
    # Everybody's work under made-up names; one's own under the real ones.
    PSEUDONYMOUS = "pseudonymous"
    # Work of one's own projects; of the rest only that GPUs are held.
    PROJECT = "project"
    # One's own work; of the rest only that GPUs are held.
    OWN = "own"


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody who was recognised, however that was done."""

    user: str
    role: Role
    groups: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    # A token may permit less than its owner's role; None: all that the role permits.
    scopes: frozenset[Permission] | None = None
    # A progress token may be for one workload alone.
    workload: str = ""

    @property
    def permissions(self) -> frozenset[Permission]:
        """What this identity may do."""
        granted = ROLE_PERMISSIONS[self.role]
        return granted if self.scopes is None else granted & self.scopes

    def may(self, permission: Permission) -> bool:
        """Return whether it may do this."""
        return permission in self.permissions
