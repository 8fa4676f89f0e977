"""Every store has every method of the protocol, written out, with the same parameters."""

from __future__ import annotations

import inspect

import pytest

from marey.app.privacy.private_store import PrivateStore
from marey.model.errors import Unavailable
from marey.model.metrics import Entity
from marey.model.protocols import Selection, Store
from marey.store.embedded.embedded_store import EmbeddedStore, open_store
from marey.store.journal.journaled_store import JournaledStore
from marey.store.split_store import RecordsAlone, SplitStore

STORES = [EmbeddedStore, JournaledStore, SplitStore, RecordsAlone, PrivateStore]
METHODS = sorted(
    name
    for name, member in inspect.getmembers(Store)
    if not name.startswith("_") and callable(member)
)
# What is asked of the store behind a journal, and what is not held back by it.
NEVER_HELD_BACK = {"document", "documents", "put_document", "put_documents", "delete_document"}


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_what_the_protocol_says(kind: type[Store], name: str) -> None:
    promised = inspect.signature(getattr(Store, name)).parameters.values()
    found = inspect.signature(getattr(kind, name)).parameters.values()
    assert [(p.name, p.kind) for p in found] == [(p.name, p.kind) for p in promised]


@pytest.mark.parametrize("kind", STORES)
def test_no_store_passes_on_what_it_does_not_name(kind: type[Store]) -> None:
    assert not hasattr(kind, "__getattr__")
    assert isinstance(inspect.getattr_static(kind, "path"), property)


def test_the_journal_writes_out_every_method_itself() -> None:
    assert set(METHODS) <= set(vars(JournaledStore))
    asked = set(METHODS) - NEVER_HELD_BACK - {"sample_state", "clusters", "close", "maintain"}
    asked -= {"ingest", "apply", "append"}
    for name in asked:
        assert "_get_current_store" in inspect.getsource(getattr(JournaledStore, name)), name


def test_records_alone_say_where_the_samples_are() -> None:
    store = RecordsAlone(open_store(None), "http://there:8428")
    selection = Selection(("util",), 0, 1)
    questions = (
        lambda: store.scan(selection),
        lambda: store.series(selection, 10),
        lambda: store.histograms(selection, 10),
        lambda: store.statistics(selection),
        lambda: store.latest("default", Entity.GPU, 0),
    )
    for ask in questions:
        with pytest.raises(Unavailable, match="http://there:8428"):
            ask()
    assert store.clusters() == []
    store.close()
