"""Opening the store of samples that the configuration names, and how its server is doing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marey.app.collect.source_health import SourceAbout, SourceState
from marey.app.settings.configuration import StoreSettings
from marey.app.settings.source_settings import get_secret
from marey.model.errors import Conflict, InvalidInput, NotFound, shown
from marey.model.protocols import SampleServerState, Store
from marey.store.split_store import RecordsAlone, SplitStore

if TYPE_CHECKING:
    from marey.store.victoria.victoria_store import VictoriaSettings

DOCUMENT_KIND = "store"
DOCUMENT_NAME = "samples"
STORE_NAME = "VictoriaMetrics"
_MB = 1 << 20


def describe_store_source(store: Store, now_ms: int) -> list[SourceState]:
    """Return the store's server as the sources page and live messages show it, where
    there is one.
    """
    reported = store.sample_state()
    if reported is None:
        return []
    failing_s = reported["failing_since_s"]
    age_ms = 0 if failing_s is None else round(1000 * (time.time() - failing_s))
    error = "" if failing_s is None else _describe_backlog(reported)
    return [
        SourceState(
            STORE_NAME,
            SourceAbout("store", ""),
            state="fresh" if failing_s is None else "stale",
            last_ms=now_ms - age_ms,
            newest_ms=reported["newest_confirmed_ms"] or None,
            error=error,
            error_code="" if failing_s is None else reported["error_code"],
            last_error=error or reported["refused_reason"],
            polls=reported["attempts"],
            failures=reported["failures"],
            values_total=reported["delivered_samples"],
        )
    ]


def _describe_backlog(state: SampleServerState) -> str:
    return (
        f"{state['error']} {state['waiting_rows']} rows ({state['spill_bytes'] / _MB:.1f} of "
        f"{state['spill_limit_bytes'] // _MB} MB) wait on disk; none is lost."
    )


def open_sample_store(records: Store, settings: StoreSettings) -> Store:
    """Return the record store, with VictoriaMetrics for the samples where the configuration says
    so.
    """
    reported = _read_sample_place(records)
    if settings.samples == "embedded":
        if reported is not None:
            raise Conflict(
                f"The samples of '{shown(settings.path)}' are in VictoriaMetrics at "
                f"{shown(reported['url'])}; set store.samples to victoriametrics, or give another "
                "store."
            )
        return records
    if not settings.url:
        raise InvalidInput("store.url is missing; allowed: http://host:8428, or https.")
    # Only here: a command that asks a server should not wait for the parts of a store.
    from marey.store.victoria.victoria_store import open_victoria

    samples = open_victoria(make_victoria_settings(settings))
    document = {"kind": settings.samples, "url": settings.url, "site": settings.site}
    if document != reported:
        records.put_document(DOCUMENT_KIND, DOCUMENT_NAME, document)
    return SplitStore(records, samples)


def make_victoria_settings(settings: StoreSettings) -> VictoriaSettings:
    """Return the settings of VictoriaMetrics from the configuration."""
    from marey.store.victoria.delivery.delivery_state import DeliveryRules
    from marey.store.victoria.http_server import ServerAddress
    from marey.store.victoria.victoria_store import VictoriaSettings

    address = ServerAddress(
        settings.url, settings.write_url, read_store_secret(settings), settings.timeout_ms / 1000
    )
    return VictoriaSettings(
        address,
        Path(settings.spill or f"{settings.path}.spill"),
        site=settings.site,
        spill_limit_bytes=settings.spill_limit_mb * _MB,
        delivery=DeliveryRules(settle_s=settings.settle_ms / 1000),
    )


def read_store_secret(settings: StoreSettings) -> str:
    """Return the secret for VictoriaMetrics from the environment or a file.

    Empty where none is named.
    """
    return get_secret(settings, "store.token_file").find()


def wrap_records_alone(store: Store) -> Store:
    """Return the store of a file alone.

    Where its samples are elsewhere, questions about them say so.
    """
    reported = _read_sample_place(store)
    return store if reported is None else RecordsAlone(store, str(reported.get("url", "")))


def refuse_samples_elsewhere(store: Store) -> None:
    """Refuse to put samples into a file whose samples are elsewhere."""
    place = _read_sample_place(store)
    if place is not None:
        raise Conflict(
            f"The samples of this store are in VictoriaMetrics at {shown(place.get('url', ''))}; "
            "start its server with marey serve and import through that."
        )


def _read_sample_place(store: Store) -> dict[str, Any] | None:
    try:
        found = store.document(DOCUMENT_KIND, DOCUMENT_NAME)
    except NotFound:
        return None
    return found if isinstance(found, dict) else None
