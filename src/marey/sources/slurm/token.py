"""A JSON web token that may be renewed in its file, and that says itself when it expires."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass

from marey.model.errors import InvalidInput, Unavailable
from marey.model.times import EARLIEST_MS, LATEST_MS, format_time


class TokenExpired(Unavailable):
    """The token is over: nothing was asked, and a new one mends it at once."""

    code = "unauthorized"


@dataclass(slots=True)
class ControllerToken:
    """The token as it stands where it is kept; read anew each time it is needed."""

    read: Callable[[], str]

    def check(self) -> str:
        """Return the token as it stands; one that no header may hold is refused."""
        token = self.read().strip()
        if not token or not all(33 <= ord(c) < 127 for c in token):
            raise InvalidInput("The Slurm token is empty or holds what a header may not.")
        return token

    def current(self, now_ms: int) -> str:
        """Return the token of this moment; an expired one is refused without asking anybody."""
        token = self.check()
        over_ms = read_expiry_ms(token)
        if over_ms is not None and over_ms <= now_ms:
            raise TokenExpired(
                f"The Slurm token expired at {format_time(over_ms)}; write a new one "
                "(scontrol token lifespan=…) where it is kept, nothing needs a restart."
            )
        return token


def read_expiry_ms(token: str) -> int | None:
    """Return when a JSON web token expires.

    None where it does not say. Its signature is not checked.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        moment = round(float(claims["exp"]) * 1000)
    except (binascii.Error, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return moment if EARLIEST_MS <= moment <= LATEST_MS else None
