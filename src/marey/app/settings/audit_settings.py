"""Settings of the record of changes, sign-ins and refusals."""

from __future__ import annotations

from dataclasses import dataclass

from marey.app.settings.setting_kinds import duration, setting
from marey.model.times import DAY_MS


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """The record of changes, sign-ins and refusals."""

    retention_ms: int = setting(
        duration(DAY_MS, 3650 * DAY_MS),
        "a duration from 1d to 3650d, such as 400d",
        "How long entries are kept.",
        default=400 * DAY_MS,
        shown_as="400d",
    )
