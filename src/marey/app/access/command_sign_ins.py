"""Commands that sign in: a code on the terminal, confirmed by its user in the web app."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from marey.app.access.sessions import make_digest
from marey.model.errors import NotFound, TooLarge
from marey.model.times import MINUTE_MS

LIFE_MS = 10 * MINUTE_MS
WAITING_LIMIT = 1_000
WAITING_PER_PEER = 20
# Neither vowels, which make words, nor letters that look like digits.
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
_LENGTH = 8


@dataclass(slots=True)
class CommandSignIn:
    """One command that waits for its user."""

    code: str
    secret_digest: str
    # What the command says of the machine it runs on; for the person who is asked.
    place: str
    peer: str
    begun_ms: int
    # The token, once somebody has confirmed; given out once.
    token: str = ""


class CommandSignIns:
    """Commands that wait, by their code; each ends by itself after ten minutes."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._held: dict[str, CommandSignIn] = {}
        self._lock = threading.Lock()

    def begin(self, *, place: str, peer: str) -> tuple[str, CommandSignIn]:
        """Return the command's secret and what waits for its user."""
        secret = secrets.token_urlsafe(32)
        letters = "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))
        code = f"{letters[:4]}-{letters[4:]}"
        waiting = CommandSignIn(code, make_digest(secret), place, peer, self._now_ms())
        with self._lock:
            self._drop_old()
            if len(self._held) >= WAITING_LIMIT:
                raise TooLarge("Too many commands are signing in; try again in ten minutes.")
            own = [key for key, held in self._held.items() if held.peer == peer]
            for key in own[: max(0, len(own) - WAITING_PER_PEER + 1)]:
                del self._held[key]
            self._held[code] = waiting
        return secret, waiting

    def get(self, code: str) -> CommandSignIn:
        """Return the command that shows this code."""
        with self._lock:
            self._drop_old()
            found = self._held.get(code.strip().upper())
        if found is None or found.token:
            raise NotFound(
                "No command is waiting with this code; it may have expired. Run the command again."
            )
        return found

    def confirm(self, code: str, token: str) -> None:
        """Give the command its token."""
        self.get(code).token = token

    def take(self, code: str, secret: str) -> str:
        """Return the token, once, to the command that began; empty while its user is asked."""
        with self._lock:
            self._drop_old()
            found = self._held.get(code)
            if found is None or not secrets.compare_digest(
                found.secret_digest, make_digest(secret)
            ):
                raise NotFound("This sign-in has expired; run the command again.")
            if found.token:
                del self._held[code]
            return found.token

    def _drop_old(self) -> None:
        oldest_ms = self._now_ms() - LIFE_MS
        for key in [key for key, held in self._held.items() if held.begun_ms <= oldest_ms]:
            del self._held[key]
