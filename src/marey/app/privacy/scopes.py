"""From an identity to what it sees."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from marey.app.privacy.owners import WorkloadOwners
from marey.model.access.identity import Identity, Privacy
from marey.model.access.pseudonyms import KEY_BYTES, Pseudonyms
from marey.model.access.record_mask import RecordMask
from marey.model.access.scope import Scope, make_scope
from marey.model.protocols import Store

ViewT = TypeVar("ViewT")
# A view is a few small objects; what it reads is the store's.
KEPT_VIEWS = 512


@dataclass(frozen=True, slots=True)
class PrivacyRules:
    """A site's privacy mode, and the key of its made-up names."""

    mode: Privacy = Privacy.OPEN
    # Without a file the names hold until the server ends.
    key: bytes = field(default_factory=lambda: secrets.token_bytes(KEY_BYTES), repr=False)


class Scopes(Generic[ViewT]):
    """Views by scope, the least recently used forgotten."""

    def __init__(self, store: Store, rules: PrivacyRules) -> None:
        self.mode = rules.mode
        self.pseudonyms = Pseudonyms(rules.key)
        self.owners = WorkloadOwners(store, self.pseudonyms)
        self._views: OrderedDict[Scope, ViewT] = OrderedDict()
        self._lock = threading.Lock()

    def find_scope(self, identity: Identity) -> Scope:
        """Return the scope of an identity; without projects, those it has worked in count."""
        scope = make_scope(identity, self.mode)
        if scope.privacy is Privacy.PROJECT and not scope.projects and scope.user:
            return replace(scope, projects=self.owners.find_projects(scope.user))
        return scope

    def get_view(self, scope: Scope, make: Callable[[RecordMask], ViewT]) -> ViewT:
        """Return the view of a scope, made when it is first asked for."""
        with self._lock:
            view = self._views.get(scope)
            if view is None:
                view = self._views[scope] = make(RecordMask(scope, self.pseudonyms))
            self._views.move_to_end(scope)
            while len(self._views) > KEPT_VIEWS:
                self._views.popitem(last=False)
            return view
