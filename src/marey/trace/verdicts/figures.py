"""Figures of the breakdown as sentences of evidence, so that the two always agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from marey.model.system.percentages import format_percent

# The ranks that are quoted; all of them stand in the table.
MOST_RANKS = 4


@dataclass(frozen=True)
class Figure:
    """One cell of the table of ranks: how long, of how long."""

    rank: int
    # A column of the breakdown without its unit: "idle host", "exposed comm".
    what: str
    part_ns: float
    span_ns: float

    @property
    def share(self) -> float:
        """The part of the span."""
        return self.part_ns / self.span_ns if self.span_ns > 0 else 0.0

    def words(self) -> str:
        """``rank 3: idle host 397.8 ms of 13335.8 ms (3 %)``."""
        part, span = self.part_ns / 1e6, self.span_ns / 1e6
        of = f"{part:.3f} ms of {span:.3f} ms ({format_percent(self.share)})"
        return f"rank {self.rank}: {self.what} {of}"


def state_figures(figures: Sequence[Figure]) -> tuple[str, ...]:
    """Return the largest shares, as sentences."""
    worst = sorted(figures, key=lambda figure: (-figure.share, figure.rank))
    return tuple(figure.words() for figure in worst[:MOST_RANKS])
