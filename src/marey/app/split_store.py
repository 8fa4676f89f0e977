"""Records in the file, samples in VictoriaMetrics: two stores that look like one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from marey.app.collecting import OneStepStore, Papers, Store
from marey.app.configuration import StoreSettings
from marey.app.source_state import SourceAbout, SourceState
from marey.model.errors import Conflict, InvalidInput, NotFound, StoreError, Unavailable, shown
from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.model.protocols import Answer, Selection
from marey.model.samples import SampleBatch

if TYPE_CHECKING:
    from marey.store.victoria.store import VictoriaSettings, VictoriaStore

DOCUMENT_KIND = "store"
DOCUMENT_NAME = "samples"
STORE_NAME = "VictoriaMetrics"
_MB = 1 << 20
_SAMPLE_QUESTIONS = frozenset({"scan", "series", "histograms", "statistics", "latest"})


class SplitStore:
    """Both promises of a store; what is not about samples is the record store's."""

    def __init__(self, records: Store, samples: VictoriaStore) -> None:
        self._records = records
        self.samples = samples

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def ingest(
        self,
        observations: Iterable[Observation],
        batches: Iterable[SampleBatch] = (),
        papers: Papers | None = None,
    ) -> None:
        """Take over a tick or a history: the samples onto the disk, then the records.

        Killed between the two, the samples of that tick are there without its records. A spill
        that is full does not keep the records from being kept; it is told after that.
        """
        failure: StoreError | None = None
        try:
            self.samples.append(batches)
        except StoreError as error:
            failure = error
        records = self._records
        if isinstance(records, OneStepStore):
            records.ingest(observations, ())
        else:
            for observation in observations:
                records.apply(observation)
        for kind, named in (papers or {}).items():
            for name, document in named.items():
                records.put_document(kind, name, document)
        if failure is not None:
            raise failure

    def apply(self, observation: Observation) -> None:
        """Take over what was observed; the samples in it are not this call's."""
        self._records.apply(observation)

    def append(self, batches: Iterable[SampleBatch]) -> None:
        """Keep these samples."""
        self.samples.append(batches)

    def clusters(self) -> list[str]:
        """The clusters there are, also those that only have samples."""
        return sorted({*self._records.clusters(), *self.samples.clusters()})

    def scan(self, selection: Selection) -> Iterator[SampleBatch]:
        """The samples themselves."""
        return self.samples.scan(selection)

    def series(self, selection: Selection, points: int) -> Answer:
        """Downsampled series that keep extremes."""
        return self.samples.series(selection, points)

    def histograms(
        self, selection: Selection, bins: int, ranges: Sequence[tuple[float, float]] = ()
    ) -> Answer:
        """Counts per entity and metric over equal bins."""
        return self.samples.histograms(selection, bins, ranges)

    def statistics(self, selection: Selection, quantiles: Sequence[float] = ()) -> Answer:
        """Exact statistics per entity and metric."""
        return self.samples.statistics(selection, quantiles)

    def latest(self, cluster: str, kind: Entity, since_ms: int) -> SampleBatch:
        """The newest value of every metric of every entity."""
        return self.samples.latest(cluster, kind, since_ms)

    def span(self, cluster: str) -> tuple[int, int] | None:
        """Time of the first and last sample."""
        return self.samples.span(cluster)

    def maintain(self, now_ms: int) -> None:
        """Whatever keeps the stores fast and small."""
        self._records.maintain(now_ms)
        self.samples.maintain(now_ms)

    def close(self) -> None:
        """Finish cleanly."""
        try:
            self.samples.close()
        finally:
            self._records.close()

    def sample_state(self) -> dict[str, Any]:
        """How the server of the samples is doing, and what waits for it."""
        return self.samples.state()


def sample_state(store: object) -> dict[str, Any] | None:
    """The state of a store whose samples are elsewhere; None where they are in the file."""
    state = getattr(store, "sample_state", None)
    return None if state is None else cast(dict[str, Any], state())


def store_source(store: object, now_ms: int) -> list[SourceState]:
    """The store's server as the sources page and live messages show it, where there is one."""
    told = sample_state(store)
    if told is None:
        return []
    failing_s = told["failing_since_s"]
    age_ms = 0 if failing_s is None else round(1000 * (time.time() - failing_s))
    error = "" if failing_s is None else _waiting(told)
    return [
        SourceState(
            STORE_NAME,
            SourceAbout("store", ""),
            state="fresh" if failing_s is None else "stale",
            last_ms=now_ms - age_ms,
            newest_ms=told["newest_confirmed_ms"] or None,
            error=error,
            last_error=error or told["refused_reason"],
            polls=told["attempts"],
            failures=told["failures"],
            values_total=told["delivered_samples"],
        )
    ]


def _waiting(told: dict[str, Any]) -> str:
    return (
        f"{told['error']} {told['waiting_rows']} rows ({told['spill_bytes'] / _MB:.1f} of "
        f"{told['spill_limit_bytes'] // _MB} MB) wait on disk; none is lost."
    )


def with_samples_elsewhere(records: Store, settings: StoreSettings) -> Store:
    """The record store, with VictoriaMetrics for the samples where the configuration says so."""
    told = _told(records)
    if settings.samples == "embedded":
        if told is not None:
            raise Conflict(
                f"The samples of '{shown(settings.path)}' are in VictoriaMetrics at "
                f"{shown(told['url'])}; set store.samples to victoriametrics, or give another "
                "store."
            )
        return records
    if not settings.url:
        raise InvalidInput("store.url is missing; allowed: http://host:8428, or https.")
    # Only here: a command that asks a server should not wait for the parts of a store.
    from marey.store.victoria.store import open_victoria

    samples = open_victoria(victoria_settings(settings))
    document = {"kind": settings.samples, "url": settings.url, "site": settings.site}
    if document != told:
        records.put_document(DOCUMENT_KIND, DOCUMENT_NAME, document)
    return cast(Store, SplitStore(records, samples))


def victoria_settings(settings: StoreSettings) -> VictoriaSettings:
    """What the configuration says of VictoriaMetrics."""
    from marey.store.victoria.delivery_state import DeliveryRules
    from marey.store.victoria.server import ServerAddress
    from marey.store.victoria.store import VictoriaSettings

    address = ServerAddress(
        settings.url, settings.write_url, store_secret(settings), settings.timeout_ms / 1000
    )
    return VictoriaSettings(
        address,
        Path(settings.spill or f"{settings.path}.spill"),
        site=settings.site,
        spill_limit_bytes=settings.spill_limit_mb * _MB,
        delivery=DeliveryRules(settle_s=settings.settle_ms / 1000),
    )


def store_secret(settings: StoreSettings) -> str:
    """The secret for VictoriaMetrics from the environment or a file; empty where none is named."""
    if settings.token_env:
        secret = os.environ.get(settings.token_env, "").strip()
        if not secret:
            raise InvalidInput(f"The environment variable {settings.token_env} is empty.")
        return secret
    if not settings.token_file:
        return ""
    try:
        return Path(settings.token_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"store.token_file '{shown(settings.token_file)}': {error}.") from None


class RecordsAlone:
    """A store's file without its samples: says where they are when it is asked for them."""

    def __init__(self, records: Store, url: str) -> None:
        self._records = records
        self._url = url

    def __getattr__(self, name: str) -> Any:
        if name in _SAMPLE_QUESTIONS:
            raise Unavailable(
                f"The samples of this store are in VictoriaMetrics at {shown(self._url)}; ask "
                "through the server that uses both: start it with marey serve."
            )
        return getattr(self._records, name)


def samples_of_file(store: Store) -> Store:
    """The store of a file alone; where its samples are elsewhere, questions about them say so."""
    told = _told(store)
    return store if told is None else cast(Store, RecordsAlone(store, str(told.get("url", ""))))


def refuse_samples_elsewhere(store: Store) -> None:
    """Refuse to put samples into a file whose samples are elsewhere."""
    told = _told(store)
    if told is not None:
        raise Conflict(
            f"The samples of this store are in VictoriaMetrics at {shown(told.get('url', ''))}; "
            "start its server with marey serve and import through that."
        )


def _told(store: Store) -> dict[str, Any] | None:
    try:
        found = store.document(DOCUMENT_KIND, DOCUMENT_NAME)
    except NotFound:
        return None
    return found if isinstance(found, dict) else None
