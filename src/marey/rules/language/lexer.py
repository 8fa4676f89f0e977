"""The text of a rule as tokens, each with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from marey.model.errors import InvalidInput, shown

TEXT_LIMIT = 4_000
# Words of the language itself: no name of anything, unless in quotes.
KEYWORDS = frozenset({"and", "or", "not", "over", "of", "in"})


class RuleError(InvalidInput):
    """A rule's text is wrong at a known place: ``start`` and ``end`` are offsets into it."""

    def __init__(self, message: str, text: str, start: int, end: int) -> None:
        self.text, self.start, self.end = text, start, max(end, start + 1)
        self.reason = message
        line = text.count("\n", 0, start) + 1
        column = start - (text.rfind("\n", 0, start) + 1) + 1
        self.line, self.column = line, column
        super().__init__(f"At line {line}, column {column}: {message}")

    def mark_place(self) -> str:
        """Return the line of the text with a mark under the place, for a terminal."""
        line = self.text.split("\n")[self.line - 1]
        width = min(self.end - self.start, max(len(line) - self.column + 1, 1))
        clean = "".join(c if c.isprintable() else "�" for c in line)
        return f"{clean}\n{' ' * (self.column - 1)}{'^' * width}"


class TokenKind(StrEnum):
    """What a token is."""

    NUMBER = "a number"
    WORD = "a word"
    STRING = "a text in quotes"
    PARAMETER = "a threshold"
    SIGN = "a sign"
    END = "the end"


@dataclass(frozen=True, slots=True)
class Token:
    """One token; ``value`` is what it means, ``start`` and ``end`` where it stands."""

    kind: TokenKind
    value: str
    start: int
    end: int


_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+(?![\w.]))?")
_WORD = re.compile(r"[^\W\d][\w.\-]*|°[A-Za-z]*")
_SIGN = re.compile(r"<=|>=|==|!=|<>|[<>=()\[\],:*×%/+\-≤≥≠]")
_SPACE = re.compile(r"\s+")
_SAME = {"==": "=", "<>": "!=", "×": "*", "≤": "<=", "≥": ">=", "≠": "!="}
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "'": "'", "\\": "\\"}


def tokens(text: str) -> list[Token]:
    """Return every token of a rule's text, the last one being its end."""
    if len(text) > TEXT_LIMIT:
        raise RuleError(
            f"the rule has {len(text)} characters; allowed: {TEXT_LIMIT}.",
            text[:TEXT_LIMIT],
            TEXT_LIMIT - 1,
            TEXT_LIMIT,
        )
    found: list[Token] = []
    at = 0
    while at < len(text):
        space = _SPACE.match(text, at)
        if space:
            at = space.end()
            continue
        token = _read_token(text, at, found)
        found.append(token)
        at = token.end
    found.append(Token(TokenKind.END, "", len(text), len(text)))
    return found


def _read_token(text: str, at: int, before: list[Token]) -> Token:
    first = text[at]
    if first in "\"'":
        return _read_string(text, at)
    if first == "$":
        word = _WORD.match(text, at + 1)
        if word is None:
            raise RuleError("a threshold's name must follow '$', as in $low.", text, at, at + 1)
        return Token(TokenKind.PARAMETER, word[0], at, word.end())
    number = _NUMBER.match(text, at)
    # "workload - 5%": after a word a minus subtracts, elsewhere it belongs to the number.
    if number and not (first == "-" and before and before[-1].kind is TokenKind.WORD):
        return Token(TokenKind.NUMBER, number[0], at, number.end())
    word = _WORD.match(text, at)
    if word:
        return Token(TokenKind.WORD, word[0], at, word.end())
    sign = _SIGN.match(text, at)
    if sign is None:
        raise RuleError(f"'{shown(first)}' means nothing in a rule.", text, at, at + 1)
    return Token(TokenKind.SIGN, _SAME.get(sign[0], sign[0]), at, sign.end())


def _read_string(text: str, at: int) -> Token:
    out: list[str] = []
    quote, i = text[at], at + 1
    while i < len(text):
        c = text[i]
        if c == quote:
            return Token(TokenKind.STRING, "".join(out), at, i + 1)
        if c == "\\" and i + 1 < len(text):
            if text[i + 1] not in _ESCAPES:
                raise RuleError(
                    f"'\\{shown(text[i + 1])}' is not an escape; allowed: \\n \\t \\\" \\' \\\\.",
                    text,
                    i,
                    i + 2,
                )
            out.append(_ESCAPES[text[i + 1]])
            i += 2
            continue
        out.append(c)
        i += 1
    raise RuleError("this quote is never closed.", text, at, at + 1)


def quote_text(text: str) -> str:
    """Return a text as a rule may hold it, in quotes."""
    out = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{out}"'
