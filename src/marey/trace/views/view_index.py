"""The facts about a converted run that every page needs."""

from __future__ import annotations

from typing import Any

import msgspec


class ViewIndex(msgspec.Struct):
    """What was written, and the facts about the run that every page needs."""

    format: int
    ranks: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    clock: dict[str, Any]
    parallelism: dict[str, Any]
    notes: list[str]
    missing: list[int]
