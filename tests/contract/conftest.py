"""Which stores the contract suites run over: add one here and it must pass every test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marey.store.embedded import EmbeddedStore, Retention, open_store

KEEP_ALL = Retention(raw_days=None, sketch_days=None)
StoreFactory = Callable[[], EmbeddedStore]


def _in_memory(folder: Path) -> EmbeddedStore:
    return open_store(None, retention=KEEP_ALL)


def _in_a_file(folder: Path) -> EmbeddedStore:
    number = sum(1 for _ in folder.iterdir())
    return open_store(folder / f"store-{number}.marey", retention=KEEP_ALL)


SAMPLE_STORES = {"embedded in memory": _in_memory, "embedded in a file": _in_a_file}
RECORD_STORES = SAMPLE_STORES


def _opened(make: Callable[[Path], EmbeddedStore], folder: Path) -> Iterator[StoreFactory]:
    stores: list[EmbeddedStore] = []

    def new() -> EmbeddedStore:
        for store in stores:
            store.close()
        stores[:] = [make(folder)]
        return stores[0]

    yield new
    for store in stores:
        store.close()


@pytest.fixture(params=SAMPLE_STORES.values(), ids=SAMPLE_STORES.keys())
def new_sample_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoreFactory]:
    """Gives an empty sample store; the one before is closed."""
    yield from _opened(request.param, tmp_path_factory.mktemp("samples"))


@pytest.fixture(params=RECORD_STORES.values(), ids=RECORD_STORES.keys())
def new_record_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoreFactory]:
    """Gives an empty record store; the one before is closed."""
    yield from _opened(request.param, tmp_path_factory.mktemp("records"))
