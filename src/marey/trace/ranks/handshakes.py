"""Clocks from the handshake that ``marey.record`` left in each trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marey.trace.ranks.clocks import SAME_CLOCK_ERROR_US
from marey.trace.readers.trace_info import RankInfo
from marey.trace.results import Clocks


def clocks_from_handshakes(infos: Mapping[int, RankInfo]) -> Clocks | None:
    """Return every rank against the reference rank's clock; None unless all of them shook hands."""
    found = [_fit(infos[rank]) for rank in sorted(infos)]
    known = [fit for fit in found if fit is not None]
    if not known or len(known) < len(found):
        return None
    origin = min(origin for origin, _, _, _ in known)
    return Clocks(
        ranks=tuple(sorted(infos)),
        hosts=tuple(infos[rank].host for rank in sorted(infos)),
        # Marey subtracts an offset; the handshake says what to add.
        offset_us=tuple(-(offset + drift * (origin - at)) / 1e3 for at, offset, drift, _ in known),
        drift_ppm=tuple(-drift * 1e6 for _, _, drift, _ in known),
        residual_us=tuple(error / 1e3 for _, _, _, error in known),
        origin_ns=origin,
        error_us=max(SAME_CLOCK_ERROR_US, *(2 * error / 1e3 for _, _, _, error in known)),
    )


def _fit(info: RankInfo) -> tuple[int, float, float, float] | None:
    """Return a line through the first and the last exchange: time, offset there, drift, error."""
    samples = _samples(info.clock_sync)
    if not samples:
        return None
    # Samples of one handshake lie together in time; the quickest of each is the best.
    middle = (samples[0][0] + samples[-1][0]) / 2
    early = min((s for s in samples if s[0] <= middle), key=lambda s: s[2])
    late = min((s for s in samples if s[0] >= middle), key=lambda s: s[2])
    apart = late[0] - early[0]
    change = late[1] - early[1]
    # A slope below the exchanges' own error is no drift.
    drift = change / apart if apart > 0 and abs(change) > early[2] + late[2] else 0.0
    best = min(early, late, key=lambda s: s[2])
    return best[0], float(best[1]), drift, float(max(early[2], late[2]))


def _samples(record: Mapping[str, Any] | None) -> list[tuple[int, int, int]]:
    """Return (time, offset, error) of each exchange in time order.

    What is no number is left out.
    """
    clock = (record or {}).get("clock")
    listed = clock.get("samples") if isinstance(clock, dict) else None
    names = ("at_ns", "offset_ns", "error_ns")
    return sorted(
        (sample["at_ns"], sample["offset_ns"], sample["error_ns"])
        for sample in (listed if isinstance(listed, list) else [])
        if isinstance(sample, dict)
        and all(type(sample.get(name)) is int and abs(sample[name]) < 2**62 for name in names)
        and sample["error_ns"] >= 0
    )
