"""The text form of a rule → its tree. Recursive descent; every error says where.

``any: util p95[30m] > 90% and not (power_share median >= 70% or user = ada)``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from marey.model.errors import unknown
from marey.model.metrics import catalogue
from marey.model.times import DURATION_UNITS_MS
from marey.rules.language.expressions import (
    GROUPS_OF_GPUS,
    OPS,
    ORDER_OPS,
    Aggregation,
    And,
    Clause,
    ComparisonGroup,
    Condition,
    Expression,
    Fact,
    NamedThreshold,
    Not,
    Or,
    Over,
    Peers,
    Quantifier,
    Quantity,
    Reach,
    Series,
    Statistic,
    TextValues,
    Value,
)
from marey.rules.language.lexer import KEYWORDS, RuleError, Token, TokenKind
from marey.rules.language.token_reader import TokenReader
from marey.rules.language.vocabulary import (
    FACT_UNITS,
    FACTS,
    STATISTIC_WORDS,
    FactKind,
    FactSpec,
    statistic_named,
    unit_of,
)

DEPTH_LIMIT = 32
CONDITION_LIMIT = 64
WORDS_LIMIT = 1_000
LONGEST_WINDOW_MS = DURATION_UNITS_MS["d"]


def parse_rule(text: str) -> Clause:
    """Parse a rule's text as a clause; raises ``RuleError`` with the place of what is wrong."""
    return _Parser(text).clause()


def parse_value(text: str, left: Series | Fact) -> Value:
    """Parse a threshold such as ``70%`` as the value that ``left`` is compared with."""
    parser = _Parser(text)
    value = parser.value(left)
    parser.expect_end()
    if isinstance(value, NamedThreshold):
        raise RuleError("a threshold cannot be another threshold.", text, 0, len(text))
    return value


class _Parser(TokenReader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.conditions = 0

    # -- the clause
    def clause(self) -> Clause:
        quantifier = self.quantifier() if self.has_quantifier() else Quantifier()
        expression = self.either(0)
        self.expect_end()
        return Clause(expression, quantifier)

    def has_quantifier(self) -> bool:
        return any(t.kind is TokenKind.SIGN and t.value == ":" for t in self.tokens)

    def quantifier(self) -> Quantifier:
        start = self.token
        found = self.quantifier_words()
        if found is None:
            raise self.wrong(
                "expected 'any', 'any node', 'all', 'all but the first rank', 'at least N' or "
                "'at least N% of gpus' before ':'.",
                start,
            )
        self.word_if("gpus", "gpu")
        self.expect_sign(":")
        return found

    def quantifier_words(self) -> Quantifier | None:
        if self.word_if("any"):
            return Quantifier(Reach.ANY_NODE if self.word_if("node") else Reach.ANY)
        if self.word_if("all"):
            if not self.word_if("but"):
                return Quantifier(Reach.ALL)
            self.word_if("the")
            if self.word_if("first") and self.word_if("rank"):
                return Quantifier(Reach.ALL_BUT_FIRST_RANK)
            raise self.expected("'the first rank'")
        if self.word_if("at"):
            if not self.word_if("least"):
                raise self.expected("'least'")
            return self.at_least()
        return None

    def at_least(self) -> Quantifier:
        token = self.token
        amount = self.number()
        if self.sign_if("%"):
            if not 0 < amount <= 100:
                raise self.wrong("the share of GPUs must be above 0% and at most 100%.", token)
            self.word_if("of")
            return Quantifier(Reach.AT_LEAST_SHARE, amount)
        if amount != int(amount) or not 1 <= amount <= 1_000_000:
            raise self.wrong("the number of GPUs must be whole and at least 1.", token)
        return Quantifier(Reach.AT_LEAST, amount)

    # -- combinations
    def either(self, depth: int) -> Expression:
        return self.joined("or", Or, self.both, depth)

    def both(self, depth: int) -> Expression:
        return self.joined("and", And, self.parse_negation, depth)

    def joined(
        self,
        word: str,
        node: type[And] | type[Or],
        inner: Callable[[int], Expression],
        depth: int,
    ) -> Expression:
        parts = [inner(depth)]
        while self.word_if(word):
            parts.append(inner(depth))
        return parts[0] if len(parts) == 1 else node(tuple(parts))

    def parse_negation(self, depth: int) -> Expression:
        if depth > DEPTH_LIMIT:
            raise self.wrong(f"the rule is nested deeper than {DEPTH_LIMIT}.")
        if self.word_if("not"):
            return Not(self.parse_negation(depth + 1))
        if self.sign_if("("):
            inside = self.either(depth + 1)
            self.expect_sign(")")
            return inside
        return self.condition()

    # -- conditions
    def condition(self) -> Condition:
        self.conditions += 1
        if self.conditions > CONDITION_LIMIT:
            raise self.wrong(f"the rule has more than {CONDITION_LIMIT} conditions.")
        if self.token.kind is not TokenKind.WORD or self.token.value.lower() in KEYWORDS:
            raise self.expected("a metric or a fact, such as 'util' or 'runtime'")
        word = self.take()
        if word.value in catalogue():
            return self.series_condition(word)
        if word.value in FACTS:
            return self.fact_condition(word)
        raise self.wrong(unknown("metric or fact", word.value, [*catalogue(), *FACTS]), word)

    def series_condition(self, word: Token) -> Condition:
        metric = catalogue()[word.value]
        statistic = self.statistic(word.value)
        window = self.window()
        over = self.over() if self.word_if("over") else None
        left = Series(metric.metric, statistic, window, over)
        op = self.operator(ORDER_OPS if statistic.name not in ("last", "min", "max") else OPS)
        return Condition(left, op, self.value(left))

    def statistic(self, metric: str) -> Statistic:
        token = self.token
        if token.kind is not TokenKind.WORD or token.value.lower() in KEYWORDS:
            return Statistic("mean")
        word = self.take().value
        if word == "share":
            return self.share(metric)
        found = statistic_named(word)
        if found is None:
            raise self.wrong(unknown("statistic", word, STATISTIC_WORDS), token)
        return found

    def share(self, metric: str) -> Statistic:
        self.expect_sign("(")
        op = self.operator(ORDER_OPS)
        limit = self.value(Series(metric, Statistic("mean")))
        if not isinstance(limit, Quantity):
            raise self.wrong("a share is taken beyond a number, as in share(< 10%).")
        self.expect_sign(")")
        return Statistic("share", op=op, limit=limit.value)

    def window(self) -> int | None:
        if not self.sign_if("["):
            return None
        token = self.token
        length = self.duration()
        if not DURATION_UNITS_MS["m"] <= length <= LONGEST_WINDOW_MS:
            raise self.wrong("a window must be between 1m and 1d long.", token)
        self.expect_sign("]")
        return length

    def over(self, groups: Sequence[ComparisonGroup] = GROUPS_OF_GPUS) -> Over:
        if not self.is_word(*groups):
            raise self.expected(" or ".join(f"'{group}'" for group in groups))
        group = ComparisonGroup(self.take().value.lower())
        if group is not ComparisonGroup.LIFE and self.is_word(*Aggregation):
            return Over(group, Aggregation(self.take().value.lower()))
        return Over(group)

    def operator(self, allowed: tuple[str, ...]) -> str:
        token = self.token
        if token.kind is not TokenKind.SIGN or token.value not in OPS:
            raise self.expected(f"one of {' '.join(allowed)}")
        if token.value not in allowed:
            raise self.wrong(f"'{token.value}' cannot be used here; allowed: {' '.join(allowed)}.")
        return self.take().value

    def fact_condition(self, word: Token) -> Condition:
        spec = FACTS[word.value]
        window_token = self.token
        window = self.window()
        if window and not spec.windowed:
            raise self.wrong(f"'{spec.fact}' has no window.", window_token)
        left = Fact(spec.fact, window)
        if spec.kind is FactKind.TEXT and self.word_if("in"):
            return Condition(left, "=", self.word_list())
        op = self.operator(("=", "!=") if spec.kind is FactKind.TEXT else OPS)
        return Condition(left, op, self.value(left))

    def word_list(self) -> TextValues:
        self.expect_sign("(")
        words = [self.text_value()]
        while self.sign_if(","):
            words.append(self.text_value())
            if len(words) > WORDS_LIMIT:
                raise self.wrong(f"a list may hold at most {WORDS_LIMIT} texts.")
        self.expect_sign(")")
        return TextValues(tuple(words))

    # -- values
    def value(self, left: Series | Fact) -> Value:
        if self.token.kind is TokenKind.PARAMETER:
            return NamedThreshold(self.take().value)
        if isinstance(left, Fact):
            return self.fact_value(FACTS[left.name])
        if self.is_word(*ComparisonGroup):
            return self.peers(left, 1.0)
        unit = unit_of(catalogue()[left.metric], left.statistic)
        token = self.token
        number = self.number()
        if self.sign_if("*"):
            return self.peers(left, number)
        if self.is_sign("%") and self.tokens[self.at + 1].value.lower() == "of":
            self.at += 2
            return self.peers(left, number / 100)
        return Quantity(self.with_unit(number, unit, token, what=f"{left.metric}"))

    def peers(self, left: Series, factor: float) -> Peers:
        over = self.over(tuple(ComparisonGroup))
        if left.over == over or (left.over and over.group is ComparisonGroup.LIFE):
            raise self.wrong("a group cannot be compared with itself or a smaller one.")
        offset = 0.0
        if self.is_sign("+") or self.is_sign("-"):
            sign = -1.0 if self.take().value == "-" else 1.0
            token = self.token
            unit = unit_of(catalogue()[left.metric], left.statistic)
            offset = sign * self.with_unit(self.number(), unit, token, what=left.metric)
        return Peers(over, factor, offset)

    def fact_value(self, spec: FactSpec) -> Quantity | TextValues:
        if spec.kind is FactKind.TEXT:
            return TextValues((self.text_value(),))
        if spec.kind is FactKind.DURATION:
            return Quantity(float(self.duration(spec.fact)))
        token = self.token
        return Quantity(
            self.with_unit(self.number(), FACT_UNITS.get(spec.fact, ""), token, what=spec.fact)
        )


def bind(clause: Clause, thresholds: Mapping[str, str]) -> Clause:
    """Return the clause with every ``$name`` replaced by its threshold; refuses unknown names."""
    return Clause(_check_bounds(clause.expression, thresholds), clause.quantifier)


def _check_bounds(expression: Expression, thresholds: Mapping[str, str]) -> Expression:
    if isinstance(expression, Not):
        return Not(_check_bounds(expression.part, thresholds))
    if isinstance(expression, And):
        return And(tuple(_check_bounds(part, thresholds) for part in expression.parts))
    if isinstance(expression, Or):
        return Or(tuple(_check_bounds(part, thresholds) for part in expression.parts))
    if not isinstance(expression.right, NamedThreshold):
        return expression
    name = expression.right.name
    if name not in thresholds:
        raise RuleError(unknown("threshold", name, thresholds), f"${name}", 0, len(name) + 1)
    value = parse_value(thresholds[name], expression.left)
    return Condition(expression.left, expression.op, value)
