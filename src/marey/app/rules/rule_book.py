"""Every rule of a site: shipped, from files, and kept on the server."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec

from marey.app.rules.rule_documents import InForceWhere, RuleDetail, RuleRow
from marey.model.errors import Conflict, NotFound, shown, unknown
from marey.model.protocols import Store
from marey.rules.definition import Rule, parse_document, read_rules, rule_document
from marey.rules.language.json_form import clause_document
from marey.rules.language.printer import rule_text
from marey.rules.pack import with_site_rules

log = logging.getLogger(__name__)

KIND = "rule"
FOLDER_KIND, FOLDER_NAME = "rule-files", "folder"
RULES_LIMIT = 20_000


class RuleBook:
    """Every rule: shipped, from files, and kept on the server; later ones replace earlier."""

    def __init__(self, store: Store, folder: Path | None = None) -> None:
        self._store, self._folder = store, folder
        self._files = read_rules(folder) if folder is not None else []
        # Ten thousand rules take seconds to read: once, until one is saved or deleted.
        self._rows: list[RuleRow] | None = None

    @classmethod
    def of_site(cls, store: Store) -> RuleBook:
        """Return the rules that the store's server judges by, its rule files included."""
        kept = store.documents(FOLDER_KIND).get(FOLDER_NAME)
        folder = Path(kept) if isinstance(kept, str) else None
        if folder is not None and not folder.exists():
            log.warning("the rule files '%s' are not here; only others are known", shown(kept))
            folder = None
        return cls(store, folder)

    def remember(self) -> None:
        """Let those who open the store later know where the rule files are."""
        if self._folder is not None:
            self._store.put_document(FOLDER_KIND, FOLDER_NAME, str(self._folder.resolve()))
        elif FOLDER_NAME in self._store.documents(FOLDER_KIND):
            self._store.delete_document(FOLDER_KIND, FOLDER_NAME)

    def all(self) -> list[Rule]:
        """Return the rules in force and those switched off, shipped ones first."""
        return with_site_rules([*keep_last_rules(self._files), *self.kept()])

    def kept(self) -> list[Rule]:
        """Return the rules that were saved on this server."""
        return [parse_document(d, f"rule '{n}'") for n, d in self._store.documents(KIND).items()]

    def get(self, name: str) -> Rule:
        """Return one rule by its id."""
        kept = self._store.documents(KIND)
        if name in kept:
            return parse_document(kept[name], f"rule '{name}'")
        others = {rule.id: rule for rule in with_site_rules(keep_last_rules(self._files))}
        if name not in others:
            raise NotFound(unknown("rule", name, {*kept, *others}))
        return others[name]

    def origin(self, name: str) -> str:
        """Return where a rule comes from: server, file or pack."""
        if name in self._store.documents(KIND):
            return "server"
        if any(rule.id == name for rule in self._files):
            return "file"
        return "pack"

    def rows(self) -> list[RuleRow]:
        """Return every rule as lists show it, with where it comes from."""
        if self._rows is None:
            origins = {rule.id: "file" for rule in self._files}
            origins |= dict.fromkeys(self._store.documents(KIND), "server")
            self._rows = [make_rule_row(rule, origins.get(rule.id, "pack")) for rule in self.all()]
        return self._rows

    def row(self, name: str) -> RuleDetail:
        """Return one rule with everything that is known of it: both forms of its clause as well."""
        rule = self.get(name)
        return RuleDetail(
            **msgspec.structs.asdict(make_rule_row(rule, self.origin(name))),
            in_force=rule_text(rule.clause),
            clause=clause_document(rule.clause),
            in_force_where=[
                InForceWhere(
                    partition=override.partition,
                    project=override.project,
                    when=rule_text(clause) if override.enabled else None,
                )
                for override, clause in rule.variants()
                if override is not None
            ],
        )

    def save(self, document: object) -> Rule:
        """Keep a rule; an invalid one is refused."""
        rule = parse_document(document)
        kept = self._store.documents(KIND)
        if rule.id not in kept and len(kept) >= RULES_LIMIT:
            raise Conflict(f"There are {RULES_LIMIT} rules already; delete some first.")
        self._store.put_document(KIND, rule.id, rule_document(rule))
        self._rows = None
        return rule

    def delete(self, name: str) -> None:
        """Forget a rule that was saved here; files and the pack are not ours to change."""
        if self.origin(name) != "server":
            self.get(name)
            raise Conflict(f"The rule '{name}' comes from a file or the pack; save it disabled.")
        self._store.delete_document(KIND, name)
        self._rows = None


def keep_last_rules(rules: Sequence[Rule]) -> list[Rule]:
    """Return the last rule of each id."""
    return list({rule.id: rule for rule in rules}.values())


def make_rule_row(rule: Rule, origin: str) -> RuleRow:
    """Return a rule as lists show it."""
    document = {**rule_document(rule), "origin": origin, "warnings": rule.warnings()}
    return msgspec.convert(document, RuleRow)
