"""Saved views: one's own, a project's and the site's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from marey.app.people.view_documents import SavedView, is_view
from marey.model.access.identity import Identity, Permission
from marey.model.documents import Document
from marey.model.errors import Conflict, InvalidInput, NotFound, NotPermitted, TooLarge, shown
from marey.model.protocols import Store

VIEWS_LIMIT = 1000
VIEWS_PER_OWNER = 200


class ViewScope(StrEnum):
    """Who sees a view; where names clash the first counts."""

    PERSONAL = "personal"
    PROJECT = "project"
    SITE = "site"


KINDS = {
    ViewScope.PERSONAL: "personal-view",
    ViewScope.PROJECT: "project-view",
    ViewScope.SITE: "view",
}


class ViewRow(Document):
    """A view in a list."""

    name: str
    scope: ViewScope
    # The project of a project's view.
    project: str
    # Whether whoever asks may replace and delete it.
    may_change: bool


@dataclass(frozen=True, slots=True)
class ViewFolder:
    """Where views are kept: of whom, and under which scope."""

    scope: ViewScope
    # User or project; empty for the site.
    owner: str = ""

    def make_key(self, name: str) -> str:
        """Return the name of a view in the store; a view's own name holds no slash."""
        return f"{self.owner}/{name}" if self.owner else name

    def read_name(self, key: str) -> str | None:
        """Return the name of a view of this folder; None for another folder's."""
        if not self.owner:
            return key
        owner, _, name = key.rpartition("/")
        return name if owner == self.owner else None


class SavedViews:
    """The views that each identity sees and may change."""

    def __init__(self, store: Store, find_projects: Callable[[str], Iterable[str]]) -> None:
        self._store = store
        self._find_projects = find_projects

    def list_rows(self, identity: Identity) -> list[ViewRow]:
        """Return the views that somebody sees, their own first."""
        return [
            ViewRow(
                name, folder.scope, self._get_project(folder), self._may_change(identity, folder)
            )
            for folder in self._list_folders(identity)
            for name in self._read_folder(folder)
        ]

    def find_all(self, identity: Identity) -> dict[str, SavedView]:
        """Return every view that somebody sees, by name."""
        found: dict[str, object] = {}
        for folder in reversed(self._list_folders(identity)):
            found |= self._read_folder(folder)
        return {name: document for name, document in found.items() if is_view(document)}

    def get(self, identity: Identity, name: str, scope: str = "", project: str = "") -> SavedView:
        """Return one view; raises ``Conflict`` where what an earlier version kept is none."""
        for folder in self._choose(identity, scope, project):
            document = self._read_folder(folder).get(name)
            if is_view(document):
                return document
            if document is not None:
                raise Conflict(
                    f"What is kept under '{shown(name)}' does not fit the grammar of views. "
                    "Save it again, or delete it."
                )
        raise NotFound(f"There is no view named '{shown(name)}'.")

    def save(
        self,
        identity: Identity,
        name: str,
        document: SavedView,
        *,
        scope: str = "",
        project: str = "",
    ) -> None:
        """Keep a view: the site's by default for operators, one's own for everybody else."""
        chosen = scope or choose_scope(identity)
        folders = self._choose(identity, chosen, project)
        if not folders:
            raise InvalidInput("There is nobody whose view it would be; sign in first.")
        folder = folders[0]
        self._check_change(identity, folder)
        known = self._read_folder(folder)
        limit = VIEWS_PER_OWNER if folder.owner else VIEWS_LIMIT
        if name not in known and len(known) >= limit:
            raise TooLarge(f"There are {limit} views already; delete some first.")
        self._store.put_document(KINDS[folder.scope], folder.make_key(name), document)

    def delete(self, identity: Identity, name: str, scope: str = "", project: str = "") -> None:
        """Forget a view; without a scope the first of this name that is seen."""
        for folder in self._choose(identity, scope, project):
            if name in self._read_folder(folder):
                self._check_change(identity, folder)
                self._store.delete_document(KINDS[folder.scope], folder.make_key(name))
                return
        raise NotFound(f"There is no view named '{shown(name)}'.")

    def _list_folders(self, identity: Identity) -> list[ViewFolder]:
        own = [ViewFolder(ViewScope.PERSONAL, identity.user)] if identity.user else []
        projects = [ViewFolder(ViewScope.PROJECT, name) for name in self.list_projects(identity)]
        return [*own, *projects, ViewFolder(ViewScope.SITE)]

    def list_projects(self, identity: Identity) -> list[str]:
        """Return the projects of somebody: of their groups, or else those they worked in."""
        if not identity.user:
            return []
        return sorted(identity.projects or self._find_projects(identity.user))

    def _choose(self, identity: Identity, scope: str, project: str) -> list[ViewFolder]:
        if project and scope != ViewScope.PROJECT:
            raise InvalidInput("A project is given only with the scope 'project'.")
        folders = [s for s in self._list_folders(identity) if not scope or s.scope == scope]
        if scope != ViewScope.PROJECT:
            return folders
        chosen = [folder for folder in folders if not project or folder.owner == project]
        if len(chosen) != 1:
            names = ", ".join(folder.owner for folder in folders) or "none"
            raise InvalidInput(f"Say of which project of yours it is; allowed: {names}.")
        return chosen

    def _read_folder(self, folder: ViewFolder) -> dict[str, object]:
        named = self._store.documents(KINDS[folder.scope])
        read = ((folder.read_name(key), document) for key, document in named.items())
        return {name: document for name, document in read if name is not None}

    def _get_project(self, folder: ViewFolder) -> str:
        return folder.owner if folder.scope is ViewScope.PROJECT else ""

    def _may_change(self, identity: Identity, folder: ViewFolder) -> bool:
        needed = Permission.OPERATE if folder.scope is ViewScope.SITE else Permission.CONTRIBUTE
        return identity.may(needed)

    def _check_change(self, identity: Identity, folder: ViewFolder) -> None:
        if not self._may_change(identity, folder):
            raise NotPermitted("Views of the whole site are changed by operators; save your own.")


def choose_scope(identity: Identity) -> ViewScope:
    """Return for whom somebody saves a view unless they say otherwise."""
    return ViewScope.SITE if identity.may(Permission.OPERATE) else ViewScope.PERSONAL
