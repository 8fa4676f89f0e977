"""Tokens of the servers at which this user has signed in, in a file that only the user reads."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from marey.app.access.openid_provider import is_safe_address
from marey.model.errors import InvalidInput, shown
from marey.model.system.atomic_file import write_file

VARIABLE = "MAREY_SIGN_INS"


class KeptSignIns(msgspec.Struct):
    """Address of a server → token; and the one that was signed in to last."""

    tokens: dict[str, str] = {}
    last: str = ""


def get_sign_ins_path() -> Path:
    """Return where the tokens are kept: below the user's configuration."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "marey" / "sign-ins.json"


def read_sign_ins() -> KeptSignIns:
    """Return the tokens; none from a file that others may read or have written."""
    path = get_sign_ins_path()
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            if stat.S_IMODE(state.st_mode) & 0o077 or state.st_uid != os.geteuid():
                raise InvalidInput(
                    f"'{shown(str(path))}' can be read or written by others; remove it (its "
                    "tokens are known to others now), and run: marey login"
                )
            return msgspec.json.decode(file.read(1 << 20), type=KeptSignIns)
    except FileNotFoundError:
        return KeptSignIns()
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(f"'{shown(str(path))}' cannot be read: {error}.") from None


def write_sign_ins(kept: KeptSignIns) -> Path:
    """Keep the tokens, for this user alone."""
    path = get_sign_ins_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    write_file(path, msgspec.json.encode(kept), draft=draft, mode=0o600)
    return path


def normalise_address(text: str) -> str:
    """Return a server's address in the form in which tokens are kept; refuses an open one."""
    address = text if "://" in text else f"https://{text}"
    if not is_safe_address(address):
        raise InvalidInput(
            f"The server's address is '{shown(text)}'; allowed: https, or http on this machine."
        )
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"
