"""Made-up names: the same at every start of a site, and not to be found by guessing real ones."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum

KEY_BYTES = 32
# Names given out lately, so that a link with one can be followed back.
REMEMBERED = 200_000
# Words of schedulers that were shown lately; there are some hundred.
WORDS_REMEMBERED = 2_000


class NameKind(StrEnum):
    """What a made-up name stands for; it begins with this word."""

    USER = "user"
    PROJECT = "project"
    WORKLOAD = "job"


# Characters of five bits each: two of 10,000 users share a name once in 20,000 sites, two of a
# million workloads once in two million.
_LENGTHS = {NameKind.USER: 8, NameKind.PROJECT: 8, NameKind.WORKLOAD: 12}


class Pseudonyms:
    """The made-up names of one site, from its secret key."""

    def __init__(self, key: bytes) -> None:
        self._key = key[:64]
        self._lock = threading.Lock()
        self._shown: dict[tuple[NameKind, str], str] = {}
        self._real: OrderedDict[tuple[NameKind, str], str] = OrderedDict()
        self._words: dict[str, None] = {}

    def make(self, kind: NameKind, real: str) -> str:
        """Return the made-up name; nobody stays nobody, and a bare number stays a number."""
        found = self._shown.get((kind, real))
        if found is not None:
            return found
        if not real or (kind is NameKind.WORKLOAD and is_bare_number(real)):
            return real
        made = self._hash(kind, real)
        self._remember(kind, real, made)
        return made

    def _hash(self, kind: NameKind, real: str) -> str:
        content = real.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(content, key=self._key, person=kind.encode(), digest_size=15)
        text = base64.b32encode(digest.digest()).decode().lower()
        return f"{kind}-{text[: _LENGTHS[kind]]}"

    def make_digest(self, text: str) -> bytes:
        """Return bytes that stand for a text and that only the key can make."""
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=self._key).digest()

    def _remember(self, kind: NameKind, real: str, shown: str) -> None:
        with self._lock:
            self._shown[kind, real] = shown
            self._real[kind, shown] = real
            while len(self._real) > REMEMBERED:
                (old_kind, _), old = self._real.popitem(last=False)
                self._shown.pop((old_kind, old), None)

    def keep_word(self, word: str) -> str:
        """Return a word that needs no other name, and remember that it was shown."""
        if word not in self._words:
            with self._lock:
                self._words[word] = None
                while len(self._words) > WORDS_REMEMBERED:
                    del self._words[next(iter(self._words))]
        return word

    def list_words(self) -> list[str]:
        """Return the words that were shown lately, so that filters can be about them."""
        with self._lock:
            return list(self._words)

    def find(self, kind: NameKind, shown: str) -> str | None:
        """Return whose made-up name this is, if it was given out lately."""
        if kind is NameKind.WORKLOAD and is_bare_number(shown):
            return shown
        return self._real.get((kind, shown))

    def find_all(self, kind: NameKind, fits: Callable[[str], bool]) -> list[str]:
        """Return the real names whose made-up ones fit."""
        with self._lock:
            known = [(shown, real) for (k, shown), real in self._real.items() if k is kind]
        return [real for shown, real in known if fits(shown)]


_NUMBER = frozenset("0123456789_.+[]-,%")


def is_bare_number(workload: str) -> bool:
    """Return whether an id is a scheduler's number (``4711``, ``4711_3``), which names nobody."""
    return bool(workload) and workload[0].isdigit() and _NUMBER.issuperset(workload)
