"""Rules of a person or a project: they judge nobody else's work, and clash with nobody's ids."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from enum import StrEnum

from marey.model.errors import InvalidInput
from marey.rules.definition import Rule
from marey.rules.language.expressions import And, Clause, Condition, Fact, TextValues

_MARK = re.compile(r"\.([pg]-[0-9a-f]{10})$")
_ID_LIMIT = 64


class RuleScope(StrEnum):
    """Whose rule it is."""

    PERSONAL = "personal"
    PROJECT = "project"
    SITE = "site"


_LETTERS = {RuleScope.PERSONAL: "p", RuleScope.PROJECT: "g"}
_FACTS = {RuleScope.PERSONAL: "user", RuleScope.PROJECT: "project"}


@dataclass(frozen=True, slots=True)
class RuleOwner:
    """A person or a project that has rules of its own."""

    scope: RuleScope
    name: str

    @property
    def mark(self) -> str:
        """What the ids of its rules end with, so that no two owners' rules are one."""
        digest = hashlib.sha256(f"{self.scope} {self.name}".encode()).hexdigest()[:10]
        return f"{_LETTERS[self.scope]}-{digest}"

    def make_id(self, name: str) -> str:
        """Return the id of a rule that its owner calls so."""
        plain = _MARK.sub("", name)
        made = f"{plain}.{self.mark}"
        if len(made) > _ID_LIMIT:
            longest = _ID_LIMIT - len(self.mark) - 1
            raise InvalidInput(f"The id '{plain}' is too long; allowed here: {longest} characters.")
        return made

    def restrict(self, rule: Rule) -> Rule:
        """Return the rule as it judges: the owner's workloads, and nobody's waste."""
        owned = Condition(Fact(_FACTS[self.scope]), "=", TextValues((self.name,)))
        template = Clause(And((owned, rule.template.expression)), rule.template.quantifier)
        return replace(rule, template=template, waste=False)


def read_mark(rule_id: str) -> str:
    """Return whose rule this is, as a mark; empty for the site's."""
    found = _MARK.search(rule_id)
    return found[1] if found else ""


def is_personal_of_another(rule_id: str, user: str) -> bool:
    """Return whether this is a personal rule of somebody else, whose findings are theirs alone."""
    mark = read_mark(rule_id)
    return mark.startswith("p-") and mark != RuleOwner(RuleScope.PERSONAL, user).mark
