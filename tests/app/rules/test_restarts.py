"""Rules over restarts and bad clocks: nobody misses a finding, no sample is lost or taken twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marey.app.collect.loop import keep
from marey.app.rules.finding_store import FindingStore
from marey.app.rules.notifications import Notifier
from marey.app.rules.rule_queries import AskBacktest
from marey.app.rules.rule_store import RuleStore
from marey.app.rules.rule_watch import RuleWatch
from marey.app.rules.state_file import find_missed_changes
from marey.model.observation import Observation
from marey.model.times import MINUTE_MS
from marey.notify.outbox import Route
from marey.notify.settings import NotifySettings
from marey.rules.engine.findings import Episode, Finding
from marey.store.embedded.embedded_store import EmbeddedStore, open_store
from tests.app.rules.test_rule_watch import (
    RULES,
    START,
    Ears,
    kept,
    live,
    observations,
    workspace_of,
)

SITE = ("quiet", "weak")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "site.toml").write_text(RULES)
    return tmp_path / "site.toml"


def heard_by(
    store: EmbeddedStore, ears: Ears, folder: Path, beside: Path | None = None
) -> RuleWatch:
    settings = NotifySettings({"ears": ears}, (Route(("ears",), group_wait_ms=0),), dry_run=False)
    return RuleWatch(store, RuleStore(store, folder), Notifier(store, settings), beside)


def told(watch: RuleWatch, ears: Ears, now_ms: int) -> list[tuple[str, str]]:
    watch.notifier.outbox.run_due(now_ms)
    return [(n.rule, n.status) for n in ears.heard if n.rule in SITE]


@pytest.fixture(scope="module")
def opens(tmp_path_factory: pytest.TempPathFactory) -> int:
    """The minute in which the finding of rule 'quiet' opens."""
    file = tmp_path_factory.mktemp("rules") / "site.toml"
    file.write_text(RULES)
    with open_store(None) as store:
        watch = RuleWatch(store, RuleStore(store, file), Notifier(store))
        live(store, watch, list(observations(45)))
        return kept(watch)["quiet", "1"][0][0] // 60


@pytest.mark.parametrize("with_state", [True, False])
def test_a_finding_that_opens_while_the_server_is_away_is_told_after_it(
    with_state: bool, opens: int, folder: Path, tmp_path: Path
) -> None:
    past, ears = list(observations()), Ears()
    beside = tmp_path / "site.duckdb" if with_state else None
    with open_store(None) as store:
        before = heard_by(store, ears, folder, beside)
        live(store, before, past[: opens - 1])
        before.checkpoint("default", past[opens - 2].time_ms)
        # Kept by the store, but the server was killed before the rules saw it.
        keep(store, past[opens - 1 : opens + 2])
        after = heard_by(store, ears, folder, beside)
        live(store, after, past[opens + 2 : opens + 4])
        now_ms = past[opens + 3].time_ms
        assert ("quiet", "firing") in told(after, ears, now_ms)
        live(store, after, past[opens + 4 :])
        assert told(after, ears, past[-1].time_ms).count(("quiet", "firing")) == 1
        assert told(after, ears, past[-1].time_ms).count(("quiet", "resolved")) == 1


def test_a_kill_between_telling_and_keeping_a_finding_loses_neither(
    opens: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past, ears = list(observations()), Ears()
    beside = tmp_path / "site.duckdb"
    with open_store(None) as store:
        before = heard_by(store, ears, folder, beside)
        live(store, before, past[:opens])
        before.checkpoint("default", past[opens - 1].time_ms)

        def killed(self: FindingStore, findings: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(FindingStore, "save", killed)
            with pytest.raises(KeyboardInterrupt):
                live(store, before, past[opens : opens + 2])
        after = heard_by(store, ears, folder, beside)
        live(store, after, past[opens + 2 : opens + 4])
        assert ("quiet", "firing") in told(after, ears, past[opens + 3].time_ms)
        assert ("quiet", "1") in kept(after)


def test_an_end_that_nobody_saw_is_told_after_the_restart(folder: Path, tmp_path: Path) -> None:
    past, ears = list(observations()), Ears()
    beside = tmp_path / "site.duckdb"
    with open_store(None) as store:
        before = heard_by(store, ears, folder, beside)
        live(store, before, past[:45])
        before.checkpoint("default", past[44].time_ms)
        assert told(before, ears, past[44].time_ms).count(("quiet", "firing")) == 1
        keep(store, past[45:])
        after = heard_by(store, ears, folder, beside)
        after.feed("default", past[-1].time_ms)
        heard = told(after, ears, past[-1].time_ms)
        assert heard.count(("quiet", "resolved")) == 1
        assert heard.count(("quiet", "firing")) == 1
        assert all(episode[1] for episode in kept(after)["quiet", "1"])


def of(*episodes: tuple[int, int | None]) -> Finding:
    return Finding(id="f", rule="r", workload="w", episodes=[Episode(*e) for e in episodes])


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, of((50, None)), ["opened"]),
        (None, of((50, 60)), []),
        (None, of((150, 160)), ["opened", "closed"]),
        (of((50, None)), of((50, None)), []),
        (of((50, None)), of((50, 120)), ["closed"]),
        (of((50, 60)), of((50, 60)), []),
        (of((50, 60)), of((50, 60), (120, None)), ["reopened"]),
        (of((50, None)), of((40, None)), []),
        (None, of(), []),
    ],
)
def test_what_was_missed_is_told_and_what_is_known_or_long_over_is_not(
    before: Finding | None, after: Finding, expected: Sequence[str]
) -> None:
    known = {} if before is None else {"f": before.episodes[-1]}
    changes = find_missed_changes(known, [after], since_ms=100)
    assert [change.kind.value for change in changes] == list(expected)


def with_one_clock_ahead(ahead_ms: int) -> Iterator[Observation]:
    """As before, but one GPU's clock is ahead of the others'."""
    for observation in observations():
        batches = []
        for batch in observation.samples:
            times = batch.time_ms.copy()
            times[1] += ahead_ms
            batches.append(replace(batch, time_ms=times))
        yield replace(observation, samples=tuple(batches))


def test_a_host_whose_clock_is_ahead_costs_no_other_host_a_sample(folder: Path) -> None:
    with open_store(None) as store:
        watch = RuleWatch(store, RuleStore(store, folder), Notifier(store))
        live(store, watch, list(with_one_clock_ahead(4 * MINUTE_MS)))
        with watch.loop("default") as loop:
            statistics = loop.evaluator.statistics("1", ["util"], ["count"])
        assert {gpu: row["util"]["count"] for gpu, row in statistics.items()} == {
            "n1:0": 75,
            "n1:1": 75,
        }
        opened = kept(watch)["quiet", "1"][0][0]
        (row,) = AskBacktest(when="util mean[10m] < 20%").ask(workspace_of(store)).rows
        # The clock that is ahead lets verdicts fall early: by its lead at most.
        assert abs((row.opened_ms - START) // 1000 - opened) <= 4 * 60


def test_a_row_from_the_far_future_amid_others_changes_nothing(folder: Path) -> None:
    with open_store(None) as store:
        watch = RuleWatch(store, RuleStore(store, folder), Notifier(store))
        past = list(observations(60))
        live(store, watch, past[:58])
        (batch,) = past[58].samples
        times = batch.time_ms.copy()
        times[1] += 10 * 24 * 60 * MINUTE_MS
        live(store, watch, [replace(past[58], samples=(replace(batch, time_ms=times),)), past[59]])
        loop = watch.loops["default"]
        loop.flush()
        assert loop.evaluator.newest_ms == past[59].time_ms
        # A restart reads the same row from the store.
        again = RuleWatch(store, RuleStore(store, folder), Notifier(store))
        again.feed("default", past[59].time_ms)
        assert again.loops["default"].evaluator.newest_ms == past[59].time_ms
        windows = again.loops["default"].evaluator.sketches.rings["util"]
        assert np.isfinite(windows.agg).any()


@pytest.mark.parametrize("with_state", [True, False])
def test_a_metric_that_no_rule_names_has_its_whole_life_after_a_restart_too(
    with_state: bool, folder: Path, tmp_path: Path
) -> None:
    """A rule saved tomorrow judges it, and cards show it: from the first sample."""
    past = []
    for observation in observations(30):
        batches = [
            replace(b, columns={**b.columns, "dram_active": np.full(len(b), 7.0, np.float32)})
            for b in observation.samples
        ]
        past.append(replace(observation, samples=tuple(batches)))
    beside = tmp_path / "site.duckdb" if with_state else None
    with open_store(None) as store:
        before = RuleWatch(store, RuleStore(store, folder), Notifier(store), beside)
        live(store, before, past[:20])
        before.checkpoint("default", past[19].time_ms)
        keep(store, past[20:])
        after = RuleWatch(store, RuleStore(store, folder), Notifier(store), beside)
        after.feed("default", past[-1].time_ms)
        with after.loop("default") as loop:
            found = loop.evaluator.statistics("1", ["dram_active", "util"], ["count"])
        assert found["n1:0"]["dram_active"]["count"] == 30
        assert found["n1:0"]["util"]["count"] == 30


def test_thousands_of_findings_that_open_at_once_are_kept_in_one_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that half the cluster violates must not hold up the verdicts."""
    writes: list[int] = []
    whole = EmbeddedStore.put_documents

    def counted(self: EmbeddedStore, kind: str, named: dict[str, object]) -> None:
        writes.append(len(named))
        whole(self, kind, named)

    monkeypatch.setattr(EmbeddedStore, "put_documents", counted)
    with open_store(None) as store:
        kept_findings = FindingStore(store)
        many = [Finding(id=f"{i:016x}", rule="r", workload=str(i)) for i in range(3_000)]
        kept_findings.save(many)
        assert writes == [3_000]
        assert len(kept_findings.all()) == 3_000
        kept_findings.add_comment(many[7].id, "mine", "eve", START, acknowledge=False)
        kept_findings.save(Finding(id=f.id, rule="r", workload=f.workload) for f in many)
        assert [c.text for c in kept_findings.get(many[7].id).comments] == ["mine"]
