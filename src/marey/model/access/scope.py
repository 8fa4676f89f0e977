"""What one identity may see: whose work under real names, and whose not at all."""

from __future__ import annotations

from dataclasses import dataclass

from marey.model.access.identity import Identity, Privacy, Role


@dataclass(frozen=True, slots=True)
class Scope:
    """A privacy mode as it applies to somebody; equal scopes see exactly the same."""

    privacy: Privacy
    user: str = ""
    projects: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """Return whether nothing is withheld."""
        return self.privacy is Privacy.OPEN

    @property
    def hides(self) -> bool:
        """Return whether others' work is left out, rather than shown under made-up names."""
        return self.privacy in (Privacy.PROJECT, Privacy.OWN)

    def knows(self, user: str, project: str) -> bool:
        """Return whether work of this user and project is shown under its real names."""
        if self.is_open or (user != "" and user == self.user):
            return True
        return self.privacy is Privacy.PROJECT and project != "" and project in self.projects


OPEN_SCOPE = Scope(Privacy.OPEN)


def make_scope(identity: Identity, privacy: Privacy) -> Scope:
    """Return the scope of an identity; operators and admins see everything."""
    if privacy is Privacy.OPEN or identity.role in (Role.OPERATOR, Role.ADMIN):
        return OPEN_SCOPE
    projects = frozenset(identity.projects) if privacy is Privacy.PROJECT else frozenset()
    return Scope(privacy, identity.user, projects)
