"""The key of a site's made-up names: made once, readable by its owner alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from marey.model.access.pseudonyms import KEY_BYTES
from marey.model.errors import InvalidInput, shown


def read_or_make_key(path: Path) -> bytes:
    """Return the key in this file; a missing one is made."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _read_key(path)
    except OSError as error:
        raise InvalidInput(
            f"The key file '{shown(str(path))}' cannot be made: {error.strerror}."
        ) from None
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        key = secrets.token_bytes(KEY_BYTES)
        file.write(key.hex().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return key


def _read_key(path: Path) -> bytes:
    place = f"The key file '{shown(str(path))}'"
    try:
        loose = path.stat().st_mode & 0o077
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise InvalidInput(f"{place} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise InvalidInput(f"{place} holds no key; allowed: {2 * KEY_BYTES} hex digits.") from None
    if loose:
        raise InvalidInput(
            f"{place} can be read by others, who could find real names with it; run chmod 600."
        )
    if len(key) < KEY_BYTES:
        raise InvalidInput(f"{place} is too short; allowed: {2 * KEY_BYTES} hex digits.")
    return key
