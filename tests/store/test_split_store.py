"""Records in the file, samples elsewhere: a full spill, secrets, clusters of samples only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from marey.app.collect.sample_store import open_sample_store, read_store_secret
from marey.app.settings.configuration import StoreSettings
from marey.model.errors import InvalidInput, StoreError, Unavailable
from marey.model.inventory import Host
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.store.embedded.embedded_store import open_store
from marey.store.journal.journaled_store import add_journal
from marey.store.split_store import SplitStore

T0 = 1_763_200_800_000
# Nobody listens there.
SETTINGS = StoreSettings(samples="victoriametrics", url="http://127.0.0.1:9")


@pytest.fixture
def split(tmp_path: Path) -> Iterator[SplitStore]:
    path = tmp_path / "site.duckdb"
    settings = replace(SETTINGS, path=str(path), spill_limit_mb=1)
    store = open_sample_store(add_journal(open_store(path)), settings)
    assert isinstance(store, SplitStore)
    yield store
    store.close()


def batch(k: int, cluster: str = "default") -> SampleBatch:
    many = 20_000
    noise = np.random.default_rng(k).random(many).astype(np.float32) * 1000
    return SampleBatch(
        np.full(many, T0 + k, np.int64),
        np.arange(many, dtype=np.int32),
        tuple(f"n{i}:0" for i in range(many)),
        {"power": np.round(noise), "sm_clock": np.round(noise[::-1])},
        cluster=cluster,
    )


def seen(k: int) -> Observation:
    return Observation(T0 + k, "default", hosts=(Host(f"host{k}"),))


def test_a_full_spill_is_told_but_keeps_no_record_from_being_kept(split: SplitStore) -> None:
    kept = 0
    failure = ""
    while not failure:
        try:
            split.ingest([seen(kept)], [batch(kept)])
        except StoreError as error:
            failure = str(error)
        kept += 1
    assert "store.spill_limit_mb" in failure
    assert 1 < kept < 50
    hosts = split.moment("default", T0 + 1000).hosts["host"].to_pylist()
    assert sorted(hosts) == sorted(f"host{k}" for k in range(kept))
    assert split.sample_state()["spill_bytes"] <= 1 << 20


def test_a_cluster_of_samples_only_is_one(split: SplitStore) -> None:
    split.append([batch(0, "elsewhere")])
    assert "elsewhere" in split.clusters()
    assert split.span("elsewhere") == (T0, T0)
    with pytest.raises(Unavailable):
        split.span("never heard of")


def test_the_secret_comes_from_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text("me:word\n")
    monkeypatch.setenv("VM_SECRET", "token")
    assert read_store_secret(SETTINGS) == ""
    assert read_store_secret(replace(SETTINGS, token_file=str(file))) == "me:word"
    assert read_store_secret(replace(SETTINGS, token_env="VM_SECRET")) == "token"
    monkeypatch.delenv("VM_SECRET")
    with pytest.raises(InvalidInput, match="VM_SECRET is empty"):
        read_store_secret(replace(SETTINGS, token_env="VM_SECRET"))


def test_samples_elsewhere_without_an_address_are_refused(tmp_path: Path) -> None:
    records = add_journal(open_store(tmp_path / "site.duckdb"))
    with pytest.raises(InvalidInput, match=r"store\.url is missing"):
        open_sample_store(records, replace(SETTINGS, url=""))
    records.close()
