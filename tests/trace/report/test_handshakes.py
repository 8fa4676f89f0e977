"""The handshake of a recorded run gives clocks with the error that it measured."""

from __future__ import annotations

import pytest

from marey.trace.ranks.handshakes import clocks_from_handshakes
from marey.trace.readers.trace_info import RankInfo

SECOND = 1_000_000_000


def shook(rank: int, *samples: tuple[int, int, int]) -> RankInfo:
    listed = [{"at_ns": at, "offset_ns": off, "error_ns": err} for at, off, err in samples]
    return RankInfo(rank, host=f"n{rank}", clock_sync={"clock": {"samples": listed}})


def test_ranks_of_one_machine_need_no_alignment() -> None:
    clocks = clocks_from_handshakes(
        {r: shook(r, (SECOND, 0, 0), (2 * SECOND, 0, 0)) for r in (0, 1)}
    )
    assert clocks is not None
    assert clocks.offset_us == (0, 0)
    assert clocks.error_us == 1.0


def test_a_clock_that_is_behind_has_a_negative_offset_and_its_error_is_kept() -> None:
    behind = shook(1, (SECOND, 500_000, 20_000), (SECOND + 10, 700_000, 90_000))
    clocks = clocks_from_handshakes({0: shook(0, (SECOND, 0, 0)), 1: behind})
    assert clocks is not None
    # 500 µs must be added, so the recorded times are 500 µs too small.
    assert clocks.offset_us[1] == pytest.approx(-500, abs=100)
    assert clocks.error_us >= 40


def test_a_drifting_clock_is_followed() -> None:
    # 10 ppm over 100 s is 1 ms.
    drifting = shook(1, (0, 0, 1000), (100 * SECOND, 1_000_000, 1000))
    clocks = clocks_from_handshakes({0: shook(0, (0, 0, 0), (100 * SECOND, 0, 0)), 1: drifting})
    assert clocks is not None
    assert clocks.drift_ppm[1] == pytest.approx(-10)
    recorded = 50 * SECOND
    moved_us = clocks.offset_us[1] + clocks.drift_ppm[1] * (recorded - clocks.origin_ns) / 1e9
    assert -moved_us == pytest.approx(500, abs=1)


@pytest.mark.parametrize(
    "record",
    [
        None,
        {},
        {"clock": None},
        {"clock": {"samples": [{"at_ns": "x"}]}},
        {"clock": {"samples": 3}},
    ],
)
def test_a_rank_without_a_whole_handshake_leaves_it_to_the_collectives(record: object) -> None:
    infos = {0: shook(0, (0, 0, 0)), 1: RankInfo(1, clock_sync=record)}
    assert clocks_from_handshakes(infos) is None
