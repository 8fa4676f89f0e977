"""How patient the delivery of samples is, and how it is doing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeliveryRules:
    """How patient the delivery is."""

    # VictoriaMetrics puts on disk what it was sent every 5 s; a kill -9 loses what came since.
    # Only what is found after this long is believed to stay.
    settle_s: float = 20.0
    # What was written shows within this long: samples after a second or two, but a question that
    # found no such series is answered from a cache that is renewed every 10 s.
    visible_s: float = 12.0

    @property
    def patience_s(self) -> float:
        """How long after it was sent a entry is looked for."""
        return max(self.settle_s, self.visible_s)


@dataclass(slots=True)
class DeliveryState:
    """How the server is doing, for /metrics and /healthz."""

    reachable: bool = True
    error: str = ""
    error_code: str = ""
    failing_since_s: float | None = None
    attempts: int = 0
    failures: int = 0
    delivered_samples: int = 0
    resent_samples: int = 0
    refused_samples: int = 0
    refused_reason: str = ""
    newest_confirmed_ms: int = 0
