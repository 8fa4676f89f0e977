"""Reading a rule's text token by token: words, signs, numbers, durations, and units."""

from __future__ import annotations

from marey.model.times import DURATION_UNITS_MS
from marey.rules.language.lexer import KEYWORDS, RuleError, Token, TokenKind, tokens
from marey.rules.language.vocabulary import factor_to, units_like


class TokenReader:
    """A rule's text as tokens, taken one by one; what is wrong is said of its place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.at = 0

    # -- reading tokens
    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.token
        self.at += token.kind is not TokenKind.END
        return token

    def is_sign(self, sign: str) -> bool:
        return self.token.kind is TokenKind.SIGN and self.token.value == sign

    def is_word(self, *words: str) -> bool:
        return self.token.kind is TokenKind.WORD and self.token.value.lower() in words

    def word_if(self, *words: str) -> bool:
        if self.is_word(*words):
            self.at += 1
            return True
        return False

    def sign_if(self, sign: str) -> bool:
        if self.is_sign(sign):
            self.at += 1
            return True
        return False

    def wrong(self, message: str, token: Token | None = None) -> RuleError:
        token = token or self.token
        return RuleError(message, self.text, token.start, token.end)

    def expected(self, what: str) -> RuleError:
        found = self.token
        name = "the end" if found.kind is TokenKind.END else f"'{found.value[:40]}'"
        return self.wrong(f"expected {what}, found {name}.")

    def expect_sign(self, sign: str) -> None:
        if not self.sign_if(sign):
            raise self.expected(f"'{sign}'")

    def expect_end(self) -> None:
        if self.token.kind is not TokenKind.END:
            raise self.expected("'and', 'or' or the end")

    # -- texts, numbers, units
    def text_value(self) -> str:
        token = self.token
        if token.kind is TokenKind.NUMBER:
            raise self.wrong(f'expected a text, found a number; write "{token.value}" in quotes.')
        if token.kind not in (TokenKind.WORD, TokenKind.STRING):
            raise self.expected("a text")
        if token.kind is TokenKind.WORD and token.value.lower() in KEYWORDS:
            raise self.expected("a text (write it in quotes)")
        return self.take().value

    def number(self) -> float:
        token = self.token
        if token.kind is not TokenKind.NUMBER:
            raise self.expected("a number")
        value = float(self.take().value)
        if abs(value) > 1e15:
            raise self.wrong("this number is too large; allowed: up to 1e15.", token)
        return value

    def duration(self, what: str = "a window") -> int:
        token = self.token
        number = self.number()
        unit = self.token
        if unit.kind is not TokenKind.WORD or unit.value not in DURATION_UNITS_MS:
            raise self.wrong(
                f"{what} is a duration: write a number with one of "
                f"{', '.join(DURATION_UNITS_MS)}, such as 10m.",
                unit if unit.kind is TokenKind.WORD else token,
            )
        self.take()
        if number < 0:
            raise self.wrong("a duration cannot be negative.", token)
        return round(number * DURATION_UNITS_MS[unit.value])

    def with_unit(self, number: float, wanted: str, token: Token, *, what: str) -> float:
        """Return the number in the wanted unit; a bare number is taken to be in it already."""
        first = self.token
        unit = self.unit()
        if not unit:
            return number
        factor = factor_to(unit, wanted)
        if factor is None:
            allowed = ", ".join(units_like(wanted)) or "a number without a unit"
            span = Token(TokenKind.WORD, unit, first.start, self.tokens[self.at - 1].end)
            raise self.wrong(
                f"'{unit[:40]}' is not a unit of {what}, which is in "
                f"{wanted or 'plain numbers'}; allowed: {allowed}.",
                span,
            )
        return number * factor

    def unit(self) -> str:
        word = self.token
        is_unit = word.kind is TokenKind.WORD and word.value.lower() not in KEYWORDS
        if not (is_unit or self.is_sign("%")):
            return ""
        parts = [self.take().value]
        while self.is_sign("/"):
            self.take()
            if self.token.kind is not TokenKind.WORD:
                raise self.expected("a unit of time after '/'")
            parts.append(self.take().value)
        return "/".join(parts)
