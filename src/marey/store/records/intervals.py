"""Validity intervals of one kind of fact: what holds now in memory, what changes as edits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from marey.store.database.facts import Key, Kind

# Stands for "there is nothing from here on".
GONE = None


class Interval(NamedTuple):
    """A value over ``[from_ms, to_ms)``; ``to_ms`` None means until further notice."""

    from_ms: int
    to_ms: int | None
    value: Any


class LastReport(NamedTuple):
    """The last report about a cluster, as one tuple."""

    values: tuple[Any, ...]
    time_ms: int
    as_all: bool


@dataclass(slots=True)
class OpenInterval:
    """What holds now: since when, and when it was last said again."""

    value: Any
    from_ms: int
    confirmed_ms: int


@dataclass(slots=True)
class Edits:
    """Rows to take out of and to put into the two tables of a kind."""

    removed_now: list[tuple[str, Key]] = field(default_factory=list)
    added_now: dict[tuple[str, Key], tuple[Any, int]] = field(default_factory=dict)
    removed_past: list[tuple[str, Key, int]] = field(default_factory=list)
    added_past: list[tuple[str, Interval]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.removed_now or self.added_now or self.removed_past or self.added_past)


class Timeline:
    """The open intervals of one kind in every cluster; changes are collected as edits."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.open: dict[str, dict[Key, OpenInterval]] = {}
        self.edits = Edits()
        # How often edits were taken to be written.
        self.changes = 0
        self._reported: dict[str, LastReport] = {}

    def is_reported(
        self, cluster: str, values: Sequence[Any], time_ms: int, *, as_all: bool = False
    ) -> bool:
        """Return whether the same values came before (as all there is), and nothing changed since.

        A source that repeats its inventory tick by tick hands over the same tuple.
        """
        reported = self._reported.get(cluster)
        if reported is None or reported.values is not values or reported.time_ms > time_ms:
            return False
        return reported.as_all or not as_all

    def note_reported(
        self, cluster: str, values: Sequence[Any], time_ms: int, as_all: bool
    ) -> None:
        """Remember that all of these hold, and whether nothing else does."""
        if isinstance(values, tuple) and values:
            self._reported[cluster] = LastReport(values, time_ms, as_all)

    def load(self, cluster: str, value: Any, from_ms: int) -> None:
        """Take over an open interval that the file has."""
        key = self.kind.key_of(value)
        self.open.setdefault(cluster, {})[key] = OpenInterval(value, from_ms, from_ms)

    def held(self, cluster: str) -> dict[Key, OpenInterval]:
        """Return the facts that hold now in a cluster."""
        return self.open.setdefault(cluster, {})

    def key(self, held: dict[Key, OpenInterval], value: Any) -> Key:
        """Return the key of a value.

        What is held under its own key need not be cleaned for that.
        """
        raw = self.kind.key_of(value)
        return raw if raw in held else self.kind.clean_key(raw)

    def put(self, cluster: str, value: Any, time_ms: int) -> bool:
        """Let the value hold from this time on; False where the past must be asked first."""
        held = self.held(cluster)
        raw_key = self.kind.key_of(value)
        known = held.get(raw_key)
        if known is not None and known.value == value and known.from_ms <= time_ms:
            known.confirmed_ms = max(known.confirmed_ms, time_ms)
            return True
        key = self.kind.clean_key(raw_key)
        known = held.get(key)
        if known is None:
            return False
        value = self.kind.clean(value)
        if time_ms < known.from_ms or (time_ms < known.confirmed_ms and known.value != value):
            return False
        if known.value != value:
            self._close(cluster, key, known, time_ms)
            self._open(cluster, key, value, time_ms)
        known = held[key]
        known.confirmed_ms = max(known.confirmed_ms, time_ms)
        return True

    def start(self, cluster: str, value: Any, time_ms: int) -> None:
        """Let a cleaned value hold that nothing is known of from this time on."""
        self._open(cluster, self.kind.key_of(value), value, time_ms)

    def end(self, cluster: str, key: Key, time_ms: int) -> None:
        """Let nothing hold from this time on, or from its beginning if that is later."""
        known = self.held(cluster).get(key)
        if known is not None:
            self._close(cluster, key, known, max(time_ms, known.from_ms))

    def replace(self, cluster: str, key: Key, old: list[Interval], new: list[Interval]) -> None:
        """Exchange intervals of a key, for what arrives late."""
        self._reported.pop(cluster, None)
        for interval in old:
            if interval.to_ms is None:
                self._remove_now(cluster, key)
            else:
                self.edits.removed_past.append((cluster, key, interval.from_ms))
        confirmed = self.held(cluster).pop(key, None)
        for interval in new:
            if interval.to_ms is None:
                self._open(cluster, key, interval.value, interval.from_ms)
                if confirmed is not None:
                    again = self.held(cluster)[key]
                    again.confirmed_ms = max(again.confirmed_ms, confirmed.confirmed_ms)
            else:
                self.edits.added_past.append((cluster, interval))

    def _open(self, cluster: str, key: Key, value: Any, time_ms: int) -> None:
        self._reported.pop(cluster, None)
        self.held(cluster)[key] = OpenInterval(value, time_ms, time_ms)
        self.edits.added_now[cluster, key] = (value, time_ms)

    def _close(self, cluster: str, key: Key, known: OpenInterval, time_ms: int) -> None:
        self._reported.pop(cluster, None)
        if time_ms > known.from_ms:
            self.edits.added_past.append((cluster, Interval(known.from_ms, time_ms, known.value)))
        self._remove_now(cluster, key)
        del self.held(cluster)[key]

    def _remove_now(self, cluster: str, key: Key) -> None:
        # What was only to be added is not yet in the file.
        if self.edits.added_now.pop((cluster, key), None) is None:
            self.edits.removed_now.append((cluster, key))

    def forget(self, cluster: str, keys: Iterable[Key]) -> None:
        """Drop from memory (not from the file) what will hardly change again."""
        held = self.held(cluster)
        for key in keys:
            held.pop(key, None)

    def take_edits(self) -> Edits:
        """Return the edits so far; the next begin anew."""
        taken, self.edits = self.edits, Edits()
        self.changes += bool(taken)
        return taken


def change_intervals(
    intervals: list[Interval], time_ms: int, value: Any, confirmed_ms: int | None
) -> list[Interval]:
    """Return the intervals of one key after "from ``time_ms`` on it was ``value``" arrived late.

    It holds until the next change that is known, or until ``confirmed_ms``, when the open
    interval's value was said again. ``GONE`` ends what held.
    """
    at = next((i for i in intervals if _does_hold(i, time_ms)), None)
    before = [i for i in intervals if i.to_ms is not None and i.to_ms <= time_ms]
    after = [i for i in intervals if i.from_ms > time_ms]
    if at is None:
        until = after[0].from_ms if after else None
        middle = _split_interval(time_ms, until, value)
    elif at.value == value:
        return intervals
    else:
        returns = at.to_ms is None and confirmed_ms is not None and confirmed_ms > time_ms
        until = confirmed_ms if returns else at.to_ms
        middle = [Interval(at.from_ms, time_ms, at.value), *_split_interval(time_ms, until, value)]
        if returns and until is not None:
            middle.append(Interval(until, None, at.value))
    return list(_join_intervals([*before, *middle, *after]))


def _does_hold(interval: Interval, time_ms: int) -> bool:
    return interval.from_ms <= time_ms and (interval.to_ms is None or time_ms < interval.to_ms)


def _split_interval(from_ms: int, to_ms: int | None, value: Any) -> list[Interval]:
    return [] if value is GONE else [Interval(from_ms, to_ms, value)]


def _join_intervals(intervals: list[Interval]) -> Iterator[Interval]:
    last: Interval | None = None
    for interval in intervals:
        if interval.to_ms is not None and interval.to_ms <= interval.from_ms:
            continue
        if last is not None and last.to_ms == interval.from_ms and last.value == interval.value:
            last = Interval(last.from_ms, interval.to_ms, last.value)
            continue
        if last is not None:
            yield last
        last = interval
    if last is not None:
        yield last
