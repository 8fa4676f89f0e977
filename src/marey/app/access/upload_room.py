"""How much somebody may still send: of the total, of their own share, of the disk."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from marey.model.access.current import current_identity
from marey.model.access.identity import Permission
from marey.model.errors import TooLarge

# Stays free for the store, which would otherwise lose ticks for somebody's upload.
DISK_RESERVE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class UploadRoom:
    """The bytes that are left, and what bounds them."""

    bytes: int
    why: str

    def check(self, wanted: int) -> None:
        """Refuse a file that will not fit, before its first byte is taken."""
        if wanted > self.bytes:
            raise TooLarge(self.describe(), code="no_room")

    def describe(self) -> str:
        """Return the sentence that refuses an upload for lack of room."""
        return f"{self.why}; {max(0, self.bytes)} bytes are left. Delete what is not needed."


def get_sender() -> str:
    """Return whose share an upload counts to."""
    return current_identity().user


def find_room(place: Path, *, total: int, own: int) -> UploadRoom:
    """Return the tightest bound: of all uploads, of the sender's own, and of the disk.

    Admins have no share of their own: they answer for the whole.
    """
    bounds = [UploadRoom(total, "All uploads together are at their limit")]
    if not current_identity().may(Permission.ADMINISTER):
        bounds.append(UploadRoom(own, "Your uploads are at the limit of one user"))
    free = shutil.disk_usage(_find_existing(place)).free - DISK_RESERVE_BYTES
    bounds.append(UploadRoom(free, "The server's disk is nearly full"))
    return min(bounds, key=lambda bound: bound.bytes)


def _find_existing(place: Path) -> Path:
    return next(path for path in (place, *place.absolute().parents) if path.is_dir())
