"""What sources say of themselves, without the words of other programs."""

from __future__ import annotations

import msgspec

from marey.app.collect.source_documents import SourceDocument
from marey.live.seen_frames import WITHHELD


def withhold_errors(row: SourceDocument) -> SourceDocument:
    """Return a source's state without errors and details, which may name anybody."""
    return msgspec.structs.replace(
        row,
        error=WITHHELD if row.error else "",
        last_error=WITHHELD if row.last_error else "",
        mend="",
        details={},
    )
