"""The shares of a site's projects, kept in the store so that whoever reads it knows them."""

from __future__ import annotations

from collections.abc import Mapping

from marey.model.protocols import Store
from marey.queue.waiting.fairness import SharesFrom, SiteShares

KIND = "project_shares"
_CONFIGURED = SharesFrom.CONFIGURATION.value


def keep_configured_shares(store: Store, weights: Mapping[str, float]) -> None:
    """Keep the shares that the configuration names; forget those of an earlier one."""
    kept = store.documents(KIND).get(_CONFIGURED)
    if weights and kept != weights:
        store.put_document(KIND, _CONFIGURED, dict(weights))
    elif not weights and kept is not None:
        store.delete_document(KIND, _CONFIGURED)


def read_site_shares(store: Store) -> SiteShares:
    """Return the shares that were configured, else equal ones."""
    kept = store.documents(KIND).get(_CONFIGURED)
    return SiteShares(kept, SharesFrom.CONFIGURATION) if kept else SiteShares()
