"""Names, revisions and times of the VictoriaMetrics store, against the real server."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from marey.model.metrics import EVERYDAY, Entity
from marey.model.protocols import Selection
from marey.model.samples import SampleBatch
from marey.store.embedded.embedded_store import open_store
from marey.store.victoria import labels
from marey.store.victoria.http_server import Server, ServerAddress
from marey.store.victoria.victoria_store import VictoriaSettings, VictoriaStore, open_victoria
from tests.store.victoria.victoria_rig import VictoriaRig

T0 = 1_763_200_800_000
FOREVER = T0 + 10**10
_SITES = itertools.count()


@pytest.fixture(scope="module")
def server(
    need_program: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VictoriaRig]:
    rig = VictoriaRig(need_program("victoria-metrics"), tmp_path_factory.mktemp("vm")).start()
    yield rig
    rig.stop()


def opened(server: VictoriaRig, folder: Path, site: str = "") -> VictoriaStore:
    """A store that delivers when it is told to."""
    number = next(_SITES)
    made = VictoriaSettings(
        ServerAddress(server.url), folder / f"spill-{number}", site=site or f"site {number}"
    )
    return open_victoria(made, deliver=False)


def said(
    values: dict[str, float], time_ms: int = T0, workload: str = "", **more: str
) -> SampleBatch:
    """One utilization per entity."""
    return SampleBatch(
        np.full(len(values), time_ms, np.int64),
        np.arange(len(values), dtype=np.int32),
        tuple(values),
        {"util": np.array(list(values.values()), np.float32)},
        workload=np.zeros(len(values), np.int32) if workload else None,
        workloads=(workload,) if workload else (),
        **more,
    )


# Letters that mean something to a label, a regular expression, CSV, JSON, MetricsQL or a terminal.
_SIGNS = st.sampled_from(
    list("ab:.\\\"'`{}[]()|*+?^$,;=~!#%&/ \t\n\r\x01\x1b\x7fäß€\u2028\U0001f600")
)
_NAMES = st.one_of(
    st.text(_SIGNS, min_size=1, max_size=12),
    st.text(min_size=1, max_size=12),
    st.builds("{}:{}".format, st.text(_SIGNS, min_size=1, max_size=6), st.integers(0, 99)),
    st.sampled_from(["n:01", "n:1", "n:1.2", "n:1.02", "::1:3", ":3", "n:", "a" * 5000 + ":1"]),
)


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(names=st.lists(_NAMES, min_size=1, max_size=5, unique=True), site=_NAMES, cluster=_NAMES)
@example(names=["a|b", "a", "b", ".*", ".+:0"], site='"}', cluster="\\")
@example(names=["n\n1:0", "n\r:0", 'n"},:0', "n,1:0"], site="\n", cluster="\n,=")
def test_any_name_comes_back_as_it_was_and_selects_only_itself(
    server: VictoriaRig, tmp_path: Path, names: list[str], site: str, cluster: str
) -> None:
    kept = {labels.clean_entity(name): float(i) for i, name in enumerate(names)}
    with opened(server, tmp_path, f"{site[:200]}{next(_SITES)}") as store:
        store.append([said({n: float(i) for i, n in enumerate(names)}, cluster=cluster)])
        store.append([said({"other": 99.0}, workload=names[0], cluster=cluster)])
        store.deliver_all()
        assert store.state()["refused_samples"] == 0

        def found(**more: object) -> dict[str, float]:
            selection = Selection(("util",), 0, FOREVER, cluster=cluster, **more)
            table = store.statistics(selection).table
            return dict(zip(table["entity"].to_pylist(), table["last"].to_pylist(), strict=True))

        assert found() == {**kept, "other": 99.0}
        for name in names:
            own = labels.clean_entity(name)
            assert found(entities=(name,)) == {own: kept[own]}
        assert found(workload=names[0]) == {"other": 99.0}
        newest = store.latest(cluster, Entity.GPU, 0)
        assert {newest.entities[code] for code in newest.entity} == {*kept, "other"}


@given(name=_NAMES)
def test_the_labels_of_an_entity_tell_its_name(name: str) -> None:
    for kind in Entity:
        parts = labels.split_entity(kind, name)
        assert labels.join_entity(dict(zip(labels.ENTITY_LABELS, parts, strict=True))) == name
    assert len(labels.clean_entity(name)) < 300


@given(text=st.text(max_size=30))
def test_a_quoted_text_has_no_end_within(text: str) -> None:
    body = labels.quote_text(text)[1:-1]
    assert not re.search(r'(?<!\\)(\\\\)*"', body)
    assert "\n" not in body


def test_series_carry_the_labels_that_a_site_knows(server: VictoriaRig, tmp_path: Path) -> None:
    with opened(server, tmp_path, "labelled") as store:
        store.append([said({"node3:5.2": 40.0}, workload="4711", cluster="west")])
        store.deliver_all()
    (series,) = server.exported('{__name__="marey_util",marey="labelled"}')
    assert series["metric"] == {
        "__name__": "marey_util",
        "marey": "labelled",
        "cluster": "west",
        "host": "node3",
        "gpu": "5",
        "instance": "2",
    }
    (rows,) = server.exported('{__name__="marey_gpu_rows",marey="labelled"}')
    assert rows["metric"]["workload"] == "4711"


def test_sites_of_one_server_do_not_see_each_other(server: VictoriaRig, tmp_path: Path) -> None:
    with opened(server, tmp_path) as one, opened(server, tmp_path) as other:
        one.append([said({"n:0": 1.0})])
        one.deliver_all()
        assert other.span("default") is None
        assert other.statistics(Selection(("util",), 0, FOREVER)).table.num_rows == 0


def test_the_same_write_again_sends_nothing_and_a_correction_once(
    server: VictoriaRig, tmp_path: Path
) -> None:
    with opened(server, tmp_path, "again") as store:
        for value in (10.0, 10.0, 11.0, 11.0):
            store.append([said({"n:0": value})])
            store.deliver_all()
        assert store.statistics(Selection(("util",), 0, FOREVER)).table["last"][0].as_py() == 11.0
    series = server.exported('{__name__="marey_util",marey="again"}')
    assert {s["metric"].get("revision", ""): s["values"] for s in series} == {
        "": [10],
        "1": [11],
    }


def test_a_history_of_mixed_order_equals_the_embedded_store(
    server: VictoriaRig, tmp_path: Path
) -> None:
    """Several metrics, hosts, workloads, gaps and corrections: every answer is the same."""
    random = np.random.default_rng(5)
    gpus = tuple(f"n{i // 4}:{i % 4}" for i in range(16))
    batches = []
    for _ in range(30):
        many = int(random.integers(1, 200))
        columns = {
            m: np.where(random.random(many) < 0.2, np.nan, random.random(many) * 100).astype(
                np.float32
            )
            for m in EVERYDAY[:5]
        }
        batches.append(
            SampleBatch(
                T0 + random.integers(0, 400, many) * 15_000,
                random.integers(0, 16, many).astype(np.int32),
                gpus,
                columns,
                workload=random.integers(-1, 3, many).astype(np.int32),
                workloads=("a", "b", "c"),
            )
        )
    with opened(server, tmp_path) as store, open_store(None) as rival:
        for number, batch in enumerate(batches):
            store.append([batch])
            rival.append([batch])
            if number % 7 == 0:
                store.deliver_all()
        store.deliver_all()
        for workload in (None, "a", "b"):
            asked = Selection(EVERYDAY[:5], T0 + 7, T0 + 300 * 15_000, workload=workload)
            for question in (
                lambda s, a=asked: s.statistics(a, [0.05, 0.5, 0.95]),
                # All of them: of equal extremes the stores may choose different ones.
                lambda s, a=asked: s.series(a, 1000),
                lambda s, a=asked: s.histograms(a, 20),
            ):
                ours, theirs = question(store).table, question(rival).table
                keys = [k for k in ("entity", "metric", "time_ms") if k in ours.column_names]
                rows = [
                    sorted(table.to_pylist(), key=lambda row: [row[k] for k in keys])
                    for table in (ours, theirs)
                ]
                assert _rounded(rows[0]) == _rounded(rows[1])


def _rounded(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    def short(value: object) -> object:
        if isinstance(value, list):
            return [short(v) for v in value]
        return round(value, 4) if isinstance(value, float) else value

    return [{name: short(value) for name, value in row.items()} for row in rows]


def test_time_zones_and_summer_time_do_not_matter(
    need_program: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The night in which clocks in Berlin go from 3 back to 2: 2026-10-25, 01:00 UTC.
    night = 1_792_888_200_000
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    rig = VictoriaRig(
        need_program("victoria-metrics"), tmp_path / "vm", "-loggerTimezone=Europe/Berlin"
    ).start()
    try:
        with opened(rig, tmp_path) as store:
            times = [night + k * 900_000 for k in range(12)]
            for k, time_ms in enumerate(times):
                store.append([said({"n:0": float(k)}, time_ms)])
            store.deliver_all()
            table = store.series(Selection(("util",), 0, FOREVER * 2), 100).table
            assert table["time_ms"].to_pylist() == times
            assert table["value"].to_pylist() == [float(k) for k in range(12)]
            assert store.span("default") == (times[0], times[-1])
    finally:
        rig.stop()
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("host", "workload", "as_csv"),
    [
        ("n-2.site", "job_7", True),
        ("n2,3", "job_7", False),
        ("n2", 'a,"b', False),
        ("n2\nmarey_util,n1,0,,,,1763200800000,99", "job_7", False),
        ("n2", "über 'alles'", False),
    ],
)
def test_a_whole_cluster_is_read_alike_by_the_fast_way_and_by_the_careful_one(
    server: VictoriaRig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    workload: str,
    as_csv: bool,
) -> None:
    asked: list[str] = []
    export = Server.export_csv

    def noted(self: Server, selectors: Sequence[str], *rest: Any) -> Any:
        asked.extend(selectors)
        return export(self, selectors, *rest)

    monkeypatch.setattr(Server, "export_csv", noted)
    with opened(server, tmp_path) as store, open_store(None) as rival:
        for kept in (store, rival):
            kept.append([said({"n1:0": 1.5, "n1:1": 2.0}, T0)])
            kept.append([said({f"{host}:0": 3.25, "n1:0.1": 4.0}, T0, workload)])
            kept.append([said({"n1:0": 5.0}, T0 + 15_000, workload)])
            # Said again: of two values of a moment the newer one counts.
            kept.append([said({"n1:1": 6.0}, T0, workload)])
        store.deliver_all()
        whole = Selection(("util", "power"), T0, FOREVER)
        (ours,), (theirs,) = list(store.scan(whole)), list(rival.scan(whole))
        assert _cells(ours) == _cells(theirs)
        assert len(_cells(ours)) == 5
    assert bool(asked) == as_csv


def _cells(batch: SampleBatch) -> set[tuple[object, ...]]:
    held = [] if batch.workload is None else batch.workload.tolist()
    return {
        (batch.entities[entity], time_ms, float(value), batch.workloads[at] if at >= 0 else "")
        for entity, time_ms, value, at in zip(
            batch.entity.tolist(), batch.time_ms.tolist(), batch.columns["util"], held, strict=True
        )
    }
