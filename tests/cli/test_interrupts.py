"""A signal while a server starts ends it, wherever it is met and whatever others make of it."""

from __future__ import annotations

import gc
import os
import signal
import weakref
from collections.abc import Iterator

import pytest

from marey.cli.site.server_process import interrupted_by_signals
from marey.model.errors import StoreError


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    """A shell has what it runs in the background ignore Ctrl-C, these tests with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Node:
    """One end of a circle that only the garbage collector finds."""

    other: Node


def forget_a_circle() -> weakref.ref[Node]:
    """Make garbage during whose collection the signal arrives; what that raises is swallowed."""
    one, two = Node(), Node()
    one.other, two.other = two, one
    return weakref.ref(one, lambda _: os.kill(os.getpid(), signal.SIGTERM))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_was_swallowed_is_raised_at_the_next_look() -> None:
    def start() -> None:
        with interrupted_by_signals() as interruption:
            watched = forget_a_circle()
            interruption.check()
            gc.collect()
            assert watched() is None, "nobody has heard of it so far"
            interruption.check()

    with pytest.raises(KeyboardInterrupt) as raised:
        start()
    assert raised.value.args == (signal.SIGTERM,)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_others_make_of_a_signal_is_still_that_signal(number: int) -> None:
    def swallow() -> None:
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            raise StoreError("The store failed.") from None

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt) as raised, interrupted_by_signals():
        swallow()
    assert raised.value.args == (number,)
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_error_without_a_signal_stays_what_it_is() -> None:
    with pytest.raises(StoreError), interrupted_by_signals():
        raise StoreError("The store failed.")


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupted_by_signals() as interruption:
            os.kill(os.getpid(), signal.SIGINT)
            interruption.check()
    finally:
        signal.signal(signal.SIGINT, before)
