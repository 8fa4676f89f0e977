"""Messages of pipelines: what their receives say about the links, and how notices queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from marey.replay.families.pipeline_links import SEGMENT_BYTES
from marey.replay.families.pipeline_parallel import Pipeline
from marey.replay.model import ReplayModel
from marey.replay.programs import Action, Plan, Post, ReadyNotice, Run, Transfer, Wait, compile_plan
from marey.replay.recording.link_costs import Links

PIPELINES = ("pp-gpipe-m8", "pp-1f1b-m8", "pp-1f1b-m4", "pp-interleaved-m8")


def _links(credit: float = 0.0) -> Links:
    return Links(
        ranks=(0, 1),
        up=(10.0, 10.0),
        down=(10.0, 10.0),
        collectives={},
        message_latency_ms=0.0,
        at_once=1,
        measured_on="messages",
        reference=10.0,
        credit_bytes=credit,
    )


def _message(links: Links, source: int, target: int, turn_bytes: float = 1e9) -> Transfer:
    return Transfer(
        ranks=(source, target),
        links=(links.up_of(source), links.down_of(target)),
        size=100.0,
        latency_ms=0.0,
        queue=links.up_of(source),
        marked=True,
        notice=ReadyNotice(target, links.up_of(target), 0.0, turn_bytes),
    )


def _exchange(late: list[Action], **options: float) -> float:
    """Return when rank 1 has exchanged messages with rank 0, which has posted both at once."""
    links = _links()
    plan = Plan(links)
    for key, (source, target) in {"down": (0, 1), "back": (1, 0)}.items():
        plan.transfers[key] = _message(links, source, target, **options)
    plan.extend(0, [Post("down"), Post("back"), Wait(("back",))])
    plan.extend(1, [Run(3.0), *late, Wait(("down", "back"))])
    graph = compile_plan(plan)
    return float(graph.schedule().finish[graph.ends].max())


def test_a_notice_waits_behind_what_its_rank_sends() -> None:
    # Rank 0 waits for its receiver's notice, which comes after the 10 that the other message takes.
    assert _exchange([Post("back"), Post("down")]) == pytest.approx(23.0, abs=0.01)


def test_a_notice_that_comes_first_lets_both_messages_cross() -> None:
    assert _exchange([Post("down"), Run(0.001), Post("back")]) == pytest.approx(13.0, abs=0.01)


def test_a_notice_gets_its_turn_within_a_large_message() -> None:
    assert _exchange([Post("back"), Post("down")], turn_bytes=50.0) == pytest.approx(18.0, abs=0.01)


def test_receives_of_one_instant_are_asked_for_in_their_order() -> None:
    links = replace(_links(), ranks=(0, 1, 2), up=(10.0,) * 3, down=(10.0,) * 3)
    plan = Plan(links)
    for key, source in {"later": 0, "first": 1}.items():
        asked = _message(links, source, 2)
        notice = replace(asked.notice, takes_ms=1.0) if asked.notice else None
        plan.transfers[key] = replace(asked, notice=notice)
        plan.extend(source, [Post(key)])
    plan.extend(2, [Post("first"), Post("later"), Wait(("first",))])
    graph = compile_plan(plan)
    schedule = graph.schedule()
    asked_at = {int(row[3]): float(schedule.start[row[3]]) for row in graph.receives}
    assert list(asked_at.values()) == pytest.approx([1.0, 2.0], abs=0.01)


@pytest.mark.data
@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_over_the_same_links_shows_their_speed(
    name: str, read_model: Callable[[str], ReplayModel]
) -> None:
    plan = read_model(name).recorded.workload.plan
    assert isinstance(plan, Pipeline)
    # The links were shaped to 200 Mbit/s, which no reader of a trace is told.
    assert plan.links.up == pytest.approx([25_000.0] * 4, rel=0.07)
    assert plan.links.credit_bytes == SEGMENT_BYTES
