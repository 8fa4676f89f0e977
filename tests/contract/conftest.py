"""Which stores the contract suites run over: add one here and it must pass every test.

VictoriaMetrics stands here three times, since an answer comes from two places: ``waiting`` gives
it from the spill alone, ``confirmed`` from the server alone, ``half and half`` from both at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from marey.model.protocols import SampleStore, Store
from marey.model.samples import SampleBatch
from marey.store.embedded.embedded_store import EmbeddedStore, Retention, open_store
from marey.store.journal.journaled_store import add_journal
from marey.store.victoria.http_server import ServerAddress
from marey.store.victoria.victoria_store import VictoriaSettings, VictoriaStore, open_victoria
from tests.store.victoria.victoria_rig import VictoriaRig

KEEP_ALL = Retention(raw_days=None, sketch_days=None)
StoreFactory = Callable[[], Store]
SampleStoreFactory = Callable[[], SampleStore]

_SITES = itertools.count()


def _in_memory(folder: Path) -> EmbeddedStore:
    return open_store(None, retention=KEEP_ALL)


def _in_a_file(folder: Path) -> EmbeddedStore:
    number = sum(1 for _ in folder.iterdir())
    return open_store(folder / f"store-{number}.marey", retention=KEEP_ALL)


class _Confirmed:
    """A store over VictoriaMetrics of which some writes are confirmed before the next question."""

    def __init__(self, store: VictoriaStore, every: int) -> None:
        self._store = store
        self._every = every
        self._writes = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def append(self, batches: Iterable[SampleBatch]) -> None:
        self._store.append(batches)
        self._writes += 1
        if self._every and self._writes % self._every == 0:
            self._store.deliver_all()
            assert self._store.delivery.queue.waiting() == (0, 0)


def _journaled(folder: Path) -> Store:
    return add_journal(_in_a_file(folder))


EMBEDDED = {"embedded in memory": _in_memory, "embedded in a file": _in_a_file}
RECORDS: dict[str, Callable[[Path], Store]] = {**EMBEDDED, "journal before a file": _journaled}
# How many writes are made for one that is confirmed at once; 0: none ever is.
VICTORIA = {"victoria waiting": 0, "victoria confirmed": 1, "victoria half and half": 2}


@pytest.fixture(scope="session")
def victoria(
    need_program: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VictoriaRig]:
    """One real VictoriaMetrics for the whole session; every store has a site of its own in it."""
    program = need_program("victoria-metrics")
    rig = VictoriaRig(program, tmp_path_factory.mktemp("victoria")).start()
    yield rig
    rig.stop()


def _over_victoria(rig: VictoriaRig, every: int) -> Callable[[Path], SampleStore]:
    def make(folder: Path) -> SampleStore:
        site = f"contract-{next(_SITES)}"
        settings = VictoriaSettings(ServerAddress(rig.url), folder / site, site=site)
        return _Confirmed(open_victoria(settings, deliver=False), every)

    return make


def _opened(make: Callable[[Path], SampleStore], folder: Path) -> Iterator[SampleStoreFactory]:
    stores: list[SampleStore] = []

    def new() -> SampleStore:
        for store in stores:
            store.close()
        stores[:] = [make(folder)]
        return stores[0]

    yield new
    for store in stores:
        store.close()


@pytest.fixture(params=[*EMBEDDED, *VICTORIA])
def new_sample_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SampleStoreFactory]:
    """Gives an empty sample store; the one before is closed."""
    if request.param in VICTORIA:
        rig = request.getfixturevalue("victoria")
        make: Callable[[Path], SampleStore] = _over_victoria(rig, VICTORIA[request.param])
    else:
        make = EMBEDDED[request.param]
    yield from _opened(make, tmp_path_factory.mktemp("samples"))


@pytest.fixture(params=RECORDS.values(), ids=RECORDS.keys())
def new_record_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoreFactory]:
    """Gives an empty record store; the one before is closed."""
    yield from _opened(request.param, tmp_path_factory.mktemp("records"))
