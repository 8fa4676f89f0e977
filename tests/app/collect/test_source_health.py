"""How a source is doing: last success, lag, rate, errors; and sources changed while running."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from marey.app.collect.advice import ADVICE, GENERAL, find_advice
from marey.app.collect.polling import PolledSources
from marey.app.collect.source_health import SourceAbout, SourceState
from marey.model.errors import Unavailable
from marey.model.events import ClusterEventKind
from marey.model.observation import Observation
from tests.app.small_cluster import GPUS, START_MS, TICK_MS, samples

STALE_MS = 60_000


class Named:
    """A source that says the same at every poll, or nothing at all."""

    def __init__(self, name: str, late_ms: int = 0) -> None:
        self.name = name
        self.late_ms = late_ms
        self.silent = False
        self.asked = 0
        self.closed = 0

    def poll(self, now_ms: int) -> Sequence[Observation]:
        self.asked += 1
        if self.silent:
            raise Unavailable("answers with status 401", code="unauthorized")
        return [Observation(now_ms, "c", samples=(samples(now_ms - self.late_ms),))]

    def close(self) -> None:
        self.closed += 1


def polled(*sources: Named) -> PolledSources:
    made = PolledSources(sources, STALE_MS)
    made.describe({source.name: SourceAbout("prometheus", "c") for source in sources})
    return made


def test_the_state_tells_last_success_lag_rate_and_values() -> None:
    sources = polled(Named("p", late_ms=5_000))
    for tick in range(4):
        sources.poll(START_MS + tick * TICK_MS, 5)
    (found,) = sources.full_documents(START_MS + 4 * TICK_MS)
    values = len(GPUS) * len(samples(START_MS).columns)
    assert found.state == "fresh"
    assert found.last_ms == START_MS + 3 * TICK_MS
    assert found.age_ms == TICK_MS
    assert found.lag_ms == TICK_MS + 5_000
    assert found.values == values
    assert found.values_total == 4 * values
    assert found.rate_per_s == pytest.approx(values / (TICK_MS / 1000))
    assert (found.kind, found.cluster, found.mend) == ("prometheus", "c", "")
    sources.close()


def test_an_error_is_kept_after_it_went_away_and_says_how_to_mend_it_while_it_lasts() -> None:
    source = Named("p")
    sources = polled(source)
    source.silent = True
    sources.poll(START_MS, 5)
    (found,) = sources.full_documents(START_MS)
    assert "401" in found.error
    assert "token" in found.mend
    assert found.failures_in_a_row == 1
    source.silent = False
    sources.poll(START_MS + TICK_MS, 5)
    (found,) = sources.full_documents(START_MS + TICK_MS)
    assert (found.error, found.mend, found.failures_in_a_row) == ("", "", 0)
    assert "401" in found.last_error
    assert found.last_error_ms == START_MS
    sources.close()


def test_a_rate_needs_two_answers_and_a_span_between_them() -> None:
    state = SourceState("s")
    assert state.rate_per_s() is None
    state.succeed(START_MS, 0.1, [])
    assert state.rate_per_s() is None
    state.succeed(START_MS, 0.1, [])
    assert state.rate_per_s() is None


def test_others_are_asked_from_the_next_tick_on_and_those_that_stay_keep_their_state() -> None:
    kept, old, new = Named("kept"), Named("changed"), Named("changed")
    sources = polled(kept, old)
    sources.poll(START_MS, 5)
    taken = sources.change([kept, new], {"changed": SourceAbout("dcgm", "c")})
    assert not taken.is_set()
    assert (new.asked, old.closed) == (0, 0)
    sources.poll(START_MS + TICK_MS, 5)
    assert taken.is_set()
    assert (kept.asked, old.asked, new.asked) == (2, 1, 1)
    assert (kept.closed, old.closed) == (0, 1)
    first, second = sources.full_documents(START_MS + TICK_MS)
    assert (first.name, first.polls) == ("kept", 2)
    assert (second.name, second.polls, second.kind) == ("changed", 1, "dcgm")
    sources.close()


def test_a_source_that_is_taken_out_is_stale_until_it_comes_back() -> None:
    stays, goes = Named("stays"), Named("goes")
    sources = polled(stays, goes)
    sources.poll(START_MS, 5)
    sources.change([stays], {})
    seen = sources.poll(START_MS + TICK_MS, 5)
    events = [event for observation in seen for event in observation.events]
    assert [event.kind for event in events] == [ClusterEventKind.SOURCE_STALE]
    assert goes.closed == 1
    document = next(d for d in sources.documents(START_MS + TICK_MS) if d["name"] == "goes")
    assert document["state"] == "stale"
    assert "no longer in the configuration" in document["error"]
    full = sources.full_documents(START_MS + TICK_MS)
    assert [(d.name, d.removed) for d in full] == [("stays", False), ("goes", True)]
    again = Named("goes")
    sources.change([stays, again], {})
    seen = sources.poll(START_MS + 2 * TICK_MS, 5)
    assert ClusterEventKind.SOURCE_BACK in [e.kind for o in seen for e in o.events]
    assert [d.removed for d in sources.full_documents(START_MS)] == [False, False]
    sources.close()


def test_a_source_that_never_answered_leaves_nothing_behind() -> None:
    silent, stays = Named("silent"), Named("stays")
    silent.silent = True
    sources = polled(silent, stays)
    sources.poll(START_MS, 5)
    sources.change([stays], {})
    seen = sources.poll(START_MS + TICK_MS, 5)
    assert [d.name for d in sources.full_documents(START_MS)] == ["stays"]
    assert [e for o in seen for e in o.events] == []
    sources.close()


def test_a_source_that_cannot_describe_itself_hides_no_other() -> None:
    odd, stays = Named("odd"), Named("stays")
    odd.details = lambda: min([])
    sources = polled(odd, stays)
    sources.poll(START_MS, 5)
    first, second = sources.full_documents(START_MS)
    assert "ValueError" in first.details["fault"]
    assert second.state == "fresh"
    sources.close()


def test_sources_that_no_tick_took_over_are_closed_too() -> None:
    first, second = Named("a"), Named("b")
    sources = polled(first)
    sources.change([second], {})
    sources.close()
    assert (first.closed, second.closed) == (1, 1)


def test_two_changes_before_a_tick_are_one() -> None:
    first, second, third = Named("a"), Named("b"), Named("c")
    sources = polled(first)
    one = sources.change([second], {})
    other = sources.change([third], {})
    sources.poll(START_MS, 5)
    assert one.is_set()
    assert other.is_set()
    assert [p.source for p in sources.polled] == [third]
    assert second.asked == 0
    assert second.closed == 1
    sources.close()


def test_a_source_that_hangs_can_be_taken_out() -> None:
    hanging, stays = Named("hangs"), Named("stays")
    let_go = threading.Event()
    hanging.poll = lambda now_ms: let_go.wait(120) and []
    sources = polled(hanging, stays)
    sources.poll(START_MS, 1)
    sources.change([stays], {})
    sources.poll(START_MS + TICK_MS, 5)
    assert stays.asked == 2
    let_go.set()
    sources.close()


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("prometheus", "unauthorized", "token"),
        ("kubernetes", "forbidden", "ClusterRole"),
        ("slurm", "no_program", "slurm-client"),
        ("slurm", "controller_silent", "scontrol ping"),
        ("dcgm", "no_exporter_answers", "9400"),
        ("dcgm", "unknown_host", "resolved"),
        ("prometheus", "no_known_metric", "scrape"),
        ("prometheus", "timeout", "timeout"),
        ("prometheus", "something_new", "marey doctor"),
    ],
)
def test_every_common_reason_has_its_own_advice(kind: str, code: str, words: str) -> None:
    assert words in find_advice(kind, code)


def test_nothing_wrong_needs_no_mending() -> None:
    assert find_advice("slurm", "") == ""
    assert GENERAL not in {advice.mend for advice in ADVICE}
