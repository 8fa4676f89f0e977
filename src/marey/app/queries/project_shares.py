"""The shares of a site's projects, kept in the store so that whoever reads it knows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from marey.model.observation import Observation
from marey.model.protocols import Store
from marey.queue.waiting.fairness import SharesFrom, SiteShares

KIND = "project_shares"
_CONFIGURED = SharesFrom.CONFIGURATION.value
_REPORTED = SharesFrom.SCHEDULER.value


def keep_configured_shares(store: Store, weights: Mapping[str, float]) -> None:
    """Keep the shares that the configuration names; forget those of an earlier one."""
    kept = store.documents(KIND).get(_CONFIGURED)
    if weights and kept != weights:
        store.put_document(KIND, _CONFIGURED, dict(weights))
    elif not weights and kept is not None:
        store.delete_document(KIND, _CONFIGURED)


def watch_reported_shares(store: Store) -> Callable[[Observation], None]:
    """Return the listener that keeps each cluster's reported shares when they change."""
    last: dict[str, Mapping[str, float]] = {}

    def keep(observation: Observation) -> None:
        shares = observation.shares
        if shares is not None and shares != last.get(observation.cluster):
            last[observation.cluster] = shares
            store.put_document(KIND, _name_reported(observation.cluster), dict(shares))

    return keep


def read_site_shares(store: Store, cluster: str) -> SiteShares:
    """Return the shares that were configured, else the scheduler's own, else equal ones."""
    kept = store.documents(KIND)
    if configured := kept.get(_CONFIGURED):
        return SiteShares(configured, SharesFrom.CONFIGURATION)
    reported = kept.get(_name_reported(cluster))
    return SiteShares(reported, SharesFrom.SCHEDULER) if reported else SiteShares()


def _name_reported(cluster: str) -> str:
    return f"{_REPORTED}/{cluster}"
