"""Reading the record from the command line: its files, or the server that writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from marey.app.audit.audit_documents import AuditEntry, AuditPage
from marey.app.audit.audit_log import AuditFilter, AuditLog, get_audit_folder
from marey.app.queries.server_client import request_server
from marey.model.errors import NotFound
from marey.model.times import format_time
from marey.store.holder import StoreHolder, find_holder

_PAGE_ROWS = 1000


def read_record(store: Path, chosen: AuditFilter) -> Iterator[AuditEntry]:
    """Yield the entries that are meant, newest first, whoever has them.

    A running server is asked, because it alone decides who is an admin; otherwise the rights of
    the files decide.
    """
    server = find_holder(store)
    if server is not None:
        return _ask_server(server, chosen)
    folder = get_audit_folder(store)
    if not folder.is_dir() and not store.exists():
        raise NotFound(f"There is neither a store '{store}' nor a record '{folder}' of it.")
    return AuditLog(folder).find(chosen)


def _ask_server(server: StoreHolder, chosen: AuditFilter) -> Iterator[AuditEntry]:
    query = _describe_filter(chosen)
    cursor: str | None = chosen.cursor
    while cursor is not None:
        asked = urlencode(query | {"cursor": cursor, "limit": str(_PAGE_ROWS)})
        document = request_server(server, "GET", f"/audit?{asked}")
        page = msgspec.convert(document, AuditPage)
        yield from page.rows
        cursor = page.next


def _describe_filter(chosen: AuditFilter) -> dict[str, str]:
    moments = {"from": chosen.from_ms, "to": chosen.to_ms}
    given = {"kind": chosen.kind, "user": chosen.user, "text": chosen.text}
    given |= {key: format_time(at) for key, at in moments.items() if at is not None}
    return {key: value for key, value in given.items() if value}
