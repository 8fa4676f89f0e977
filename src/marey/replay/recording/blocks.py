"""Find the repeated blocks of a model in the order of its operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Longer patterns than this are not looked for: the search is quadratic.
LONGEST_PATTERN = 400


@dataclass(frozen=True)
class Repeats:
    """``count`` copies of a pattern of ``period`` items, the first at ``first``."""

    first: int
    period: int
    count: int

    def starts(self) -> list[int]:
        """Return where each copy starts."""
        return [self.first + n * self.period for n in range(self.count)]


def find_repeats(names: Sequence[str], count: int | None = None) -> Repeats | None:
    """Return the pattern whose copies cover most of the sequence, the shortest among equals.

    With ``count`` given, only patterns that repeat exactly so often are taken.
    """
    best: Repeats | None = None
    for period in range(1, min(len(names) // 2, LONGEST_PATTERN) + 1):
        found = _longest_run(names, period, count)
        if found and (best is None or _count_covered(found) > _count_covered(best)):
            best = found
    return best


def _count_covered(repeats: Repeats) -> int:
    return repeats.period * repeats.count


def _longest_run(names: Sequence[str], period: int, count: int | None) -> Repeats | None:
    """Return the longest stretch in which every name equals the one a period before."""
    best, length, first = None, 0, 0
    for at in range(period, len(names) + 1):
        if at < len(names) and names[at] == names[at - period]:
            if length == 0:
                first = at - period
            length += 1
            continue
        copies = length // period + 1 if length else 0
        if count is not None:
            copies = count if copies >= count and length + period >= count * period else 0
        if copies >= 2 and (best is None or copies > best.count):
            best = Repeats(first, period, copies)
        length = 0
    return best
