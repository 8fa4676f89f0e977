"""Who may change what somebody has sent: they themselves, and operators."""

from __future__ import annotations

from marey.model.access.current import current_identity
from marey.model.access.identity import Permission
from marey.model.errors import NotPermitted


def may_change(by: str) -> bool:
    """Return whether whoever is asking sent this, or changes what everybody sees."""
    asking = current_identity()
    return asking.may(Permission.OPERATE) or (by != "" and by == asking.user)


def check_sender(by: str, what: str) -> None:
    """Refuse to change something of somebody else, whom the answer does not name."""
    if not may_change(by):
        raise NotPermitted(f"{what} of somebody else; they and operators may change it.")
