"""From a name and its groups to a role."""

from __future__ import annotations

from collections.abc import Sequence

from marey.app.settings.access_settings import NOBODY, AccessSettings
from marey.model.access.identity import Identity, Role
from marey.model.names import NAME_LIMIT

GROUPS_LIMIT = 1000


def identify(settings: AccessSettings, user: str, groups: Sequence[str]) -> Identity | None:
    """Return whom the site's settings make of a name and its groups; None for nobody it lets in."""
    known = tuple(dict.fromkeys(group for group in groups[:GROUPS_LIMIT] if is_name(group)))
    role = find_role(settings, user, known)
    if role is None or not is_name(user):
        return None
    return Identity(user, role, known, find_projects(settings.project_prefix, known))


def find_role(settings: AccessSettings, user: str, groups: Sequence[str]) -> Role | None:
    """Return the highest role that the name or one of its groups has."""
    held = set(groups)
    listed = (
        (Role.ADMIN, settings.admin_groups),
        (Role.OPERATOR, settings.operator_groups),
        (Role.RESEARCHER, settings.researcher_groups),
        (Role.VIEW_ONLY, settings.view_only_groups),
    )
    if user in settings.admin_users:
        return Role.ADMIN
    for role, names in listed:
        if held & set(names):
            return role
    return None if settings.default_role == NOBODY else Role(settings.default_role)


def find_projects(prefix: str, groups: Sequence[str]) -> tuple[str, ...]:
    """Return the projects that groups stand for."""
    return tuple(
        group.removeprefix(prefix)
        for group in groups
        if group.startswith(prefix) and group != prefix
    )


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a user or group: printable, of one line, bounded."""
    return 0 < len(text) <= NAME_LIMIT and text.isprintable() and text == text.strip()
