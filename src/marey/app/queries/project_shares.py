"""The shares of a site's projects, kept in the store so that whoever reads it knows them."""

from __future__ import annotations

from collections.abc import Mapping

from marey.model.protocols import Store
from marey.queue.waiting.fairness import SharesFrom, SiteShares

KIND = "project_shares"
_CONFIGURED = SharesFrom.CONFIGURATION.value


def keep_configured_shares(store: Store, weights: Mapping[str, float]) -> None:
    """Keep the shares that the configuration names; forget those of an earlier one."""
    _keep(store, _CONFIGURED, weights)


def keep_slurm_shares(store: Store, cluster: str, weights: Mapping[str, float]) -> None:
    """Keep the shares that a cluster's Slurm has."""
    _keep(store, _name_slurm(cluster), weights)


def read_site_shares(store: Store, cluster: str) -> SiteShares:
    """Return the shares of a cluster: configured ones before Slurm's, else equal ones."""
    kept = store.documents(KIND)
    if _CONFIGURED in kept:
        return SiteShares(kept[_CONFIGURED], SharesFrom.CONFIGURATION)
    if _name_slurm(cluster) in kept:
        return SiteShares(kept[_name_slurm(cluster)], SharesFrom.SLURM)
    return SiteShares()


def _name_slurm(cluster: str) -> str:
    return f"{SharesFrom.SLURM.value}/{cluster}"


def _keep(store: Store, name: str, weights: Mapping[str, float]) -> None:
    kept = store.documents(KIND).get(name)
    if weights and kept != weights:
        store.put_document(KIND, name, dict(weights))
    elif not weights and kept is not None:
        store.delete_document(KIND, name)
