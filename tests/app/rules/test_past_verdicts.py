"""Verdicts of a past moment come from the findings that were open then."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from marey.app.rules.past_verdicts import find_verdicts_at, is_open_at
from marey.rules.engine.findings import Episode, Finding


def finding(workload: str, *episodes: tuple[int, int | None], rule: str = "idle") -> Finding:
    listed = [Episode(opened, closed) for opened, closed in episodes]
    return Finding(
        id=f"{rule}-{workload}",
        rule=rule,
        workload=workload,
        episodes=listed,
        gpus=[f"{workload}:0"],
    )


def test_each_rule_names_whom_it_was_open_against_at_that_moment() -> None:
    kept = [
        finding("a", (100, 200), (300, None)),
        finding("b", (150, 160)),
        finding("a", (190, 500), rule="hot"),
        finding("c"),
    ]

    def named(at_ms: int) -> dict[str, list[str]]:
        told = find_verdicts_at(kept, at_ms)
        assert told.time_ms == at_ms
        assert all(row.now == row.life for row in told.rules)
        return {row.rule: row.now.workloads for row in told.rules}

    assert named(99) == {}
    assert named(155) == {"idle": ["a", "b"]}
    assert named(195) == {"hot": ["a"], "idle": ["a"]}
    assert named(200) == {"hot": ["a"]}
    assert named(10_000) == {"idle": ["a"]}
    (hot,) = find_verdicts_at(kept, 250).rules
    assert hot.now.gpus == ["a:0"]


def test_while_rules_read_the_past_a_moment_is_not_known_yet() -> None:
    told = find_verdicts_at([finding("a", (100, 200))], 150, share_read=0.4)
    assert (told.time_ms, told.share_read) == (None, 0.4)
    assert [row.now.workloads for row in told.rules] == [["a"]]
    assert find_verdicts_at([], 150).time_ms == 150


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))), st.integers(0, 100))
def test_a_finding_is_open_exactly_within_its_episodes(
    spans: list[tuple[int, int]], at_ms: int
) -> None:
    episodes = [(opened, opened + length) for opened, length in spans]
    inside = any(at_ms in range(opened, closed) for opened, closed in episodes)
    assert is_open_at(finding("a", *episodes), at_ms) == inside
