"""Every rule of a site: shipped, from files, kept on the server, of a person or a project."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from marey.app.rules.rule_documents import InForceWhere, RuleDetail, RuleRow
from marey.model.access.current import current_identity
from marey.model.access.identity import Identity, Permission
from marey.model.errors import Conflict, InvalidInput, NotFound, NotPermitted, shown, unknown
from marey.model.protocols import Store
from marey.rules.definition import Rule, parse_document, read_rules, rule_document
from marey.rules.language.json_form import clause_document
from marey.rules.language.printer import rule_text
from marey.rules.ownership import RuleOwner, RuleScope, read_mark
from marey.rules.pack import with_site_rules

log = logging.getLogger(__name__)

KIND, OWNED_KIND = "rule", "owned-rule"
FOLDER_KIND, FOLDER_NAME = "rule-files", "folder"
RULES_LIMIT = 20_000
RULES_PER_OWNER = 100


class OwnedRule(msgspec.Struct, frozen=True):
    """A rule of a person or a project, as it is kept."""

    scope: RuleScope
    owner: str
    rule: dict[str, Any]

    @property
    def by(self) -> RuleOwner:
        """Whose it is."""
        return RuleOwner(self.scope, self.owner)

    def parse(self) -> Rule:
        """Return the rule as its owner wrote it."""
        return parse_document(self.rule, f"rule '{self.rule.get('id')}'")


class RuleStore:
    """Every rule: shipped, from files, and kept on the server; later ones replace earlier."""

    def __init__(
        self,
        store: Store,
        folder: Path | None = None,
        find_projects: Callable[[str], Iterable[str]] = lambda user: (),
    ) -> None:
        self._store, self._folder = store, folder
        self._find_projects = find_projects
        self._files = read_rules(folder) if folder is not None else []
        # Ten thousand rules take seconds to read: once, until one is saved or deleted.
        self._rows: list[RuleRow] | None = None

    @classmethod
    def of_site(cls, store: Store) -> RuleStore:
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
        """Return the rules in force and those switched off, shipped ones first, then owned ones."""
        owned = [one.by.restrict(one.parse()) for one in self.owned().values()]
        return [*self.list_site(), *owned]

    def list_site(self) -> list[Rule]:
        """Return the rules that judge everybody's work."""
        return with_site_rules([*keep_last_rules(self._files), *self.kept()])

    def owned(self) -> dict[str, OwnedRule]:
        """Return the rules of people and projects, by id."""
        kept = self._store.documents(OWNED_KIND)
        return {name: msgspec.convert(document, OwnedRule) for name, document in kept.items()}

    def kept(self) -> list[Rule]:
        """Return the rules that were saved on this server."""
        return [parse_document(d, f"rule '{n}'") for n, d in self._store.documents(KIND).items()]

    def get(self, name: str) -> Rule:
        """Return one rule by its id, as it judges; somebody else's is as if it were not there."""
        if read_mark(name):
            owned = self._get_owned(name)
            return owned.by.restrict(owned.parse())
        kept = self._store.documents(KIND)
        if name in kept:
            return parse_document(kept[name], f"rule '{name}'")
        others = {rule.id: rule for rule in with_site_rules(keep_last_rules(self._files))}
        if name not in others:
            raise NotFound(unknown("rule", name, {*kept, *others}))
        return others[name]

    def origin(self, name: str) -> str:
        """Return where a rule comes from: server, file or pack."""
        if read_mark(name) or name in self._store.documents(KIND):
            return "server"
        if any(rule.id == name for rule in self._files):
            return "file"
        return "pack"

    def rows(self) -> list[RuleRow]:
        """Return every rule that whoever asks sees, with where it comes from and whose it is."""
        identity = current_identity()
        owned = [one for one in self.owned().values() if self._sees(identity, one)]
        site = self._list_site_rows()
        if identity.may(Permission.OPERATE):
            site = [msgspec.structs.replace(row, may_change=True) for row in site]
        return [*site, *map(self._show_owned, owned)]

    def _list_site_rows(self) -> list[RuleRow]:
        if self._rows is None:
            origins = {rule.id: "file" for rule in self._files}
            origins |= dict.fromkeys(self._store.documents(KIND), "server")
            self._rows = [
                make_rule_row(rule, origins.get(rule.id, "pack")) for rule in self.list_site()
            ]
        return self._rows

    def _show_owned(self, one: OwnedRule) -> RuleRow:
        may_change = current_identity().may(Permission.CONTRIBUTE)
        row = make_rule_row(one.parse(), "server")
        return msgspec.structs.replace(
            row, scope=one.scope.value, owner=one.owner, waste=False, may_change=may_change
        )

    def _sees(self, identity: Identity, one: OwnedRule) -> bool:
        """Return whether somebody sees a rule: its owner, members, and operators to end it."""
        if identity.may(Permission.OPERATE):
            return True
        if one.scope is RuleScope.PERSONAL:
            return identity.user != "" and one.owner == identity.user
        return one.owner in self.list_projects(identity)

    def list_projects(self, identity: Identity) -> list[str]:
        """Return the projects of somebody: of their groups, or else those they worked in."""
        if not identity.user:
            return []
        return sorted(identity.projects or self._find_projects(identity.user))

    def _get_owned(self, name: str) -> OwnedRule:
        found = self.owned().get(name)
        if found is None or not self._sees(current_identity(), found):
            raise NotFound(f"There is no rule '{shown(name)}'.")
        return found

    def row(self, name: str) -> RuleDetail:
        """Return one rule with everything that is known of it: both forms of its clause as well."""
        rule = self.get(name)
        return RuleDetail(
            **msgspec.structs.asdict(self._make_row(rule)),
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

    def _make_row(self, rule: Rule) -> RuleRow:
        if read_mark(rule.id):
            return self._show_owned(self._get_owned(rule.id))
        row = make_rule_row(rule, self.origin(rule.id))
        return msgspec.structs.replace(row, may_change=current_identity().may(Permission.OPERATE))

    def save(self, document: object, *, scope: str = "", project: str = "") -> RuleRow:
        """Keep a rule, the site's by default for operators, one's own for everybody else."""
        rule = parse_document(document)
        owner = self._choose_owner(rule.id, scope, project)
        if owner is not None:
            return self._save_owned(owner, document)
        _check_operator()
        kept = self._store.documents(KIND)
        if rule.id not in kept and len(kept) >= RULES_LIMIT:
            raise Conflict(f"There are {RULES_LIMIT} rules already; delete some first.")
        self._store.put_document(KIND, rule.id, rule_document(rule))
        self._rows = None
        return self._make_row(rule)

    def _save_owned(self, owner: RuleOwner, document: Any) -> RuleRow:
        rule = parse_document({**document, "id": owner.make_id(document["id"])})
        known = self.owned()
        theirs = [one for one in known.values() if one.by == owner]
        is_full = len(theirs) >= RULES_PER_OWNER or len(known) >= RULES_LIMIT
        if rule.id not in known and is_full:
            raise Conflict(f"There are {RULES_PER_OWNER} such rules already; delete some first.")
        kept = OwnedRule(owner.scope, owner.name, rule_document(rule))
        self._store.put_document(OWNED_KIND, rule.id, msgspec.to_builtins(kept))
        return self._show_owned(kept)

    def _choose_owner(self, name: str, scope: str, project: str) -> RuleOwner | None:
        """Return whose rule is meant; None for the site's. A rule that there is keeps its owner."""
        identity = current_identity()
        if project and scope != RuleScope.PROJECT:
            raise InvalidInput("A project is given only with the scope 'project'.")
        if read_mark(name):
            return self._get_owned(name).by
        if not scope:
            scope = RuleScope.SITE if identity.may(Permission.OPERATE) else RuleScope.PERSONAL
        if scope == RuleScope.SITE:
            return None
        if not identity.user:
            raise InvalidInput("There is nobody whose rule it would be; sign in first.")
        if scope == RuleScope.PERSONAL:
            return RuleOwner(RuleScope.PERSONAL, identity.user)
        own = self.list_projects(identity)
        chosen = [name for name in own if not project or name == project]
        if len(chosen) != 1:
            raise InvalidInput(
                f"Say of which project of yours it is; allowed: {', '.join(own) or 'none'}."
            )
        return RuleOwner(RuleScope.PROJECT, chosen[0])

    def delete(self, name: str) -> None:
        """Forget a rule that was saved here; files and the pack are not ours to change."""
        if read_mark(name):
            self._get_owned(name)
            self._store.delete_document(OWNED_KIND, name)
            return
        if self.origin(name) != "server":
            self.get(name)
            raise Conflict(f"The rule '{name}' comes from a file or the pack; save it disabled.")
        _check_operator()
        self._store.delete_document(KIND, name)
        self._rows = None


def _check_operator() -> None:
    if not current_identity().may(Permission.OPERATE):
        raise NotPermitted("Rules of the whole site are changed by operators; save your own.")


def keep_last_rules(rules: Sequence[Rule]) -> list[Rule]:
    """Return the last rule of each id."""
    return list({rule.id: rule for rule in rules}.values())


def make_rule_row(rule: Rule, origin: str) -> RuleRow:
    """Return a rule as lists show it."""
    document = {**rule_document(rule), "origin": origin, "warnings": rule.warnings()}
    return msgspec.convert(document, RuleRow)
