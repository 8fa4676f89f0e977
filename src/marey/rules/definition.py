"""Rules as people keep them: TOML files and JSON documents, checked whole before any is used."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from marey.model.errors import InvalidInput, shown, unknown
from marey.model.faults import FaultKind
from marey.model.settings.toml_lines import TomlFile, parse_toml
from marey.model.times import MINUTE_MS, format_duration, parse_duration
from marey.rules.language.expressions import Clause
from marey.rules.language.json_form import parse_clause
from marey.rules.language.lexer import RuleError
from marey.rules.language.lint import warnings
from marey.rules.language.parser import bind, parse_rule
from marey.rules.language.printer import rule_text

NOW_WINDOW_MS = 10 * MINUTE_MS
CLOSE_AFTER_MS = 10 * MINUTE_MS
RULES_LIMIT = 20_000
FILE_LIMIT_BYTES = 16 << 20
TEXT_FIELD_LIMIT = 4_000
_ID = re.compile(r"^[a-z0-9][a-z0-9_.-]{0,63}$")
_PROSE = ("title", "explanation", "cause", "next_step", "false_positives")
_KEYS = {
    "id", "when", "clause", "fault", "severity", "enabled", "waste", "now", "open_after",
    "close_after", "thresholds", "override", *_PROSE,
}  # fmt: skip


E = TypeVar("E", bound=StrEnum)


class Severity(StrEnum):
    """How soon a person should look."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Override:
    """Other thresholds, or silence, for one partition or project."""

    partition: str | None = None
    project: str | None = None
    enabled: bool = True
    thresholds: Mapping[str, str] = field(default_factory=dict)

    def matches(self, partition: str, project: str) -> bool:
        """Return whether it is meant for a workload of this partition and project."""
        return self.partition in (None, partition) and self.project in (None, project)


@dataclass(frozen=True, slots=True)
class Rule:
    """A site rule: what it tests, how bad it is, and what to tell people."""

    id: str
    template: Clause
    thresholds: Mapping[str, str]
    title: str = ""
    fault: FaultKind | None = None
    severity: Severity = Severity.WARNING
    enabled: bool = True
    # Whether GPU-hours under this finding count as wasted.
    waste: bool = True
    now_ms: int = NOW_WINDOW_MS
    open_after_ms: int = 0
    close_after_ms: int = CLOSE_AFTER_MS
    explanation: str = ""
    cause: str = ""
    next_step: str = ""
    false_positives: str = ""
    overrides: tuple[Override, ...] = ()

    @property
    def clause(self) -> Clause:
        """What is tested where no override applies."""
        return bind(self.template, self.thresholds)

    def variants(self) -> list[tuple[Override | None, Clause]]:
        """Return the clause of each override, in order, then the one for everyone else."""
        special: list[tuple[Override | None, Clause]] = [
            (o, bind(self.template, {**self.thresholds, **o.thresholds})) for o in self.overrides
        ]
        return [*special, (None, self.clause)]

    def warnings(self) -> list[str]:
        """Return warnings for the author: contradictions, and clauses that always hold."""
        return [w for _, clause in self.variants() for w in warnings(clause)]


def draft(text: str, *, rule_id: str = "draft", **fields: Any) -> Rule:
    """Return a rule from the text alone, for lenses and back-tests."""
    return Rule(rule_id, parse_rule(text), {}, title=fields.pop("title", text), **fields)


def parse_document(document: object, place: str = "$") -> Rule:
    """Check a rule's JSON (or TOML) document and return the rule; errors say where."""
    if not isinstance(document, Mapping):
        raise _make_error(place, document, "an object with at least 'id' and 'when'")
    strange = [key for key in document if key not in _KEYS]
    if strange:
        raise InvalidInput(f"At {place}: {unknown('key', strange[0], _KEYS)}")
    thresholds = _read_thresholds(document.get("thresholds", {}), f"{place}.thresholds")
    rule = Rule(
        id=_read_identifier(document.get("id"), f"{place}.id"),
        template=_read_clause(document, place),
        thresholds=thresholds,
        fault=_read_member(FaultKind, document.get("fault"), f"{place}.fault"),
        severity=_read_member(Severity, document.get("severity", "warning"), f"{place}.severity")
        or Severity.WARNING,
        enabled=_read_flag(document.get("enabled", True), f"{place}.enabled"),
        waste=_read_flag(document.get("waste", True), f"{place}.waste"),
        now_ms=_check_length(document.get("now", "10m"), f"{place}.now", least=MINUTE_MS),
        open_after_ms=_check_length(document.get("open_after", "0s"), f"{place}.open_after"),
        close_after_ms=_check_length(document.get("close_after", "10m"), f"{place}.close_after"),
        overrides=_read_overrides(document.get("override", []), place, thresholds),
        **{key: _read_text(document.get(key, ""), f"{place}.{key}") for key in _PROSE},
    )
    _check_bindable(rule, place)
    return rule


def rule_document(rule: Rule) -> dict[str, Any]:
    """Return the rule as the JSON document that it is parsed from."""
    document: dict[str, Any] = {"id": rule.id, "when": rule_text(rule.template)}
    document |= {key: getattr(rule, key) for key in _PROSE if getattr(rule, key)}
    if rule.fault:
        document["fault"] = rule.fault.value
    document |= {"severity": rule.severity.value, "enabled": rule.enabled, "waste": rule.waste}
    document |= {
        "now": format_duration(rule.now_ms),
        "open_after": format_duration(rule.open_after_ms),
        "close_after": format_duration(rule.close_after_ms),
    }
    if rule.thresholds:
        document["thresholds"] = dict(rule.thresholds)
    if rule.overrides:
        document["override"] = [_write_override(override) for override in rule.overrides]
    return document


def _write_override(override: Override) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if override.partition is not None:
        document["partition"] = override.partition
    if override.project is not None:
        document["project"] = override.project
    if not override.enabled:
        document["enabled"] = False
    if override.thresholds:
        document["thresholds"] = dict(override.thresholds)
    return document


def parse_rules(text: str, name: str = "rules") -> list[Rule]:
    """Parse the rules of one TOML text, all or none.

    Errors name the line where the rule begins, the rule and, in ``when``, the place.
    """
    file = parse_toml(name, text)
    document = file.document
    entries = document.get("rule")
    if set(document) != {"rule"} or not isinstance(entries, list):
        raise _make_error(name, sorted(document), "[[rule]] tables only")
    if len(entries) > RULES_LIMIT:
        raise InvalidInput(f"{name} holds {len(entries)} rules; allowed: {RULES_LIMIT}.")
    return unique([_parse_entry(file, i, entry) for i, entry in enumerate(entries)], name)


def _parse_entry(file: TomlFile, index: int, entry: Any) -> Rule:
    try:
        return parse_document(entry, f"{file.name}[{index + 1}]")
    except InvalidInput as error:
        error.args = (f"{file.name}, line {file.line(('rule', index))}: {error}",)
        raise


def unique(rules: Iterable[Rule], name: str) -> list[Rule]:
    """Return the rules, refused if two have the same id."""
    listed = list(rules)
    seen: set[str] = set()
    for rule in listed:
        if rule.id in seen:
            raise InvalidInput(f"{name} holds two rules with the id '{rule.id}'.")
        seen.add(rule.id)
    return listed


def read_rules(path: Path) -> list[Rule]:
    """Return the rules of a TOML file, or of every ``*.toml`` in a folder."""
    if path.is_dir():
        return unique(
            (rule for file in sorted(path.glob("*.toml")) for rule in read_rules(file)), path.name
        )
    if path.stat().st_size > FILE_LIMIT_BYTES:
        raise InvalidInput(f"{path.name} is larger than {FILE_LIMIT_BYTES >> 20} MiB.")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path.name} is not UTF-8: {error.reason}.") from None
    return parse_rules(text, path.name)


def _read_clause(document: Mapping[str, Any], place: str) -> Clause:
    if ("when" in document) == ("clause" in document):
        raise _make_error(place, sorted(document), "either 'when' (text) or 'clause' (JSON)")
    if "clause" in document:
        return parse_clause(document["clause"])
    text = document["when"]
    if not isinstance(text, str):
        raise _make_error(f"{place}.when", text, "text")
    try:
        return parse_rule(text)
    except RuleError as error:
        error.args = (f"{place}.when: {error}\n{error.mark_place()}",)
        raise


def _check_bindable(rule: Rule, place: str) -> None:
    try:
        rule.variants()
    except RuleError as error:
        raise InvalidInput(f"{place}.thresholds: {error.reason}") from None


def _read_identifier(value: object, place: str) -> str:
    if not isinstance(value, str) or not _ID.match(value):
        raise _make_error(place, value, "1 to 64 of a-z, 0-9, _ . - (first a letter or digit)")
    return value


def _read_thresholds(value: object, place: str) -> dict[str, str]:
    if not isinstance(value, Mapping) or len(value) > 64:
        raise _make_error(place, value, "a table of names to values such as low = '15%'")
    bad = [k for k, v in value.items() if not isinstance(v, str | int | float) or v is True]
    if bad:
        raise _make_error(
            f"{place}.{shown(bad[0])}", value[bad[0]], "text such as '15%' or a number"
        )
    return {str(k): v if isinstance(v, str) else f"{v}" for k, v in value.items()}


def _read_overrides(
    value: object, place: str, thresholds: Mapping[str, str]
) -> tuple[Override, ...]:
    if not isinstance(value, list) or len(value) > 1_000:
        raise _make_error(f"{place}.override", value, "a list of tables")
    found = []
    for i, entry in enumerate(value):
        at = f"{place}.override[{i + 1}]"
        allowed = {"partition", "project", "enabled", "thresholds"}
        if not isinstance(entry, Mapping) or set(entry) - allowed:
            raise _make_error(at, entry, ", ".join(sorted(allowed)))
        names = [entry.get("partition"), entry.get("project")]
        if names == [None, None] or not all(n is None or isinstance(n, str) for n in names):
            raise _make_error(at, names, "a partition or a project, as text")
        own = _read_thresholds(entry.get("thresholds", {}), f"{at}.thresholds")
        for name in own:
            if name not in thresholds:
                raise InvalidInput(f"At {at}.thresholds: {unknown('threshold', name, thresholds)}")
        found.append(
            Override(
                names[0], names[1], _read_flag(entry.get("enabled", True), f"{at}.enabled"), own
            )
        )
    return tuple(found)


def _read_flag(value: object, place: str) -> bool:
    if not isinstance(value, bool):
        raise _make_error(place, value, "true or false")
    return value


def _check_length(value: object, place: str, least: int = 0) -> int:
    if not isinstance(value, str):
        raise _make_error(place, value, "a duration such as '10m'")
    length = parse_duration(value)
    if length < least or length > 24 * 60 * MINUTE_MS:
        raise _make_error(place, value, f"between {format_duration(least)} and 1d")
    return length


def _read_text(value: object, place: str) -> str:
    if not isinstance(value, str) or len(value) > TEXT_FIELD_LIMIT:
        raise _make_error(place, value, f"text of at most {TEXT_FIELD_LIMIT} characters")
    return " ".join(value.split()) if place.endswith("title") else value.strip()


def _read_member(kind: type[E], value: object, place: str) -> E | None:
    if value is None:
        return None
    if value not in list(kind):
        raise InvalidInput(f"At {place}: {unknown(place.rpartition('.')[2], value, list(kind))}")
    return kind(str(value))


def _make_error(place: str, value: object, wanted: str) -> InvalidInput:
    return InvalidInput(f"{place} has {shown(value)}; allowed: {wanted}.")
