"""Sources answer in a thread whose event loop runs: a notebook's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from marey.sources.http_fetch import make_loop, run_on
from tests.waiting import run_in_loop


async def _answer() -> int:
    await asyncio.sleep(0)
    return 42


@pytest.mark.parametrize("make", [asyncio.new_event_loop, make_loop])
def test_work_is_done_beside_a_loop_that_runs(
    make: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    loop = make()

    async def notebook() -> int:
        return run_on(loop, _answer())

    assert run_in_loop(notebook()) == 42
    assert run_on(loop, _answer()) == 42
    loop.close()
