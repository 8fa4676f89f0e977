"""Settings of the record of changes, sign-ins and refusals."""

from __future__ import annotations

from typing import Annotated

from marey.model.settings.setting_types import SettingsTable, limit_duration
from marey.model.times import DAY_MS


class AuditSettings(SettingsTable, frozen=True):
    """The record of changes, sign-ins and refusals."""

    retention_ms: Annotated[
        int, limit_duration("1d", "3650d", "How long entries are kept.", example="400d")
    ] = 400 * DAY_MS
