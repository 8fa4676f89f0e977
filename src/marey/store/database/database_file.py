"""One DuckDB file: opened only if it is ours, one writer, many readers, errors in our family."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from marey.model.errors import Conflict, MareyError, StoreError, TooLarge, Unavailable
from marey.model.system.atomic_file import move_file
from marey.model.system.private_files import protect_file
from marey.store.database.damaged_log import (
    DamagedLogError,
    cut_log,
    find_damage,
    has_damaged_head,
)
from marey.store.database.failure_codes import (
    DAMAGED,
    DISK_FULL,
    HELD,
    OTHER_VERSION,
    get_open_code,
    get_write_code,
    is_interrupt,
)
from marey.store.database.rows import fetch_one_row
from marey.store.database.schema import SCHEMA_VERSION, create_tables
from marey.store.holder import describe_holder

# Every DuckDB file carries this word after its first checksum.
_MAGIC = b"DUCK"
_MAGIC_AT = 8
_HEADERS_BYTES = 3 * 4096

# The log is folded into the file when it has grown to this size: about 100 ticks of 10,000 GPUs.
_LOG_LIMIT = "64MB"

# Pages that are remembered over the hour: the newest, and what every question looks at.
_CACHE_KEPT_MB = 48
# How long closing waits for readers that were interrupted.
_PATIENCE_S = 10.0

_open_here: set[str] = set()
_open_lock = threading.Lock()


class Database:
    """The open file; ``write`` is one transaction, ``read`` a snapshot of its own."""

    def __init__(self, path: Path | None, *, memory_limit_mb: int, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self._memory_mb = memory_limit_mb
        self._config: dict[str, Any] = {
            "memory_limit": f"{memory_limit_mb}MB",
            "checkpoint_threshold": _LOG_LIMIT,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        # Whatever the caller derived from the file; it must be read again when this changes.
        self.generation = 0
        self._lock = threading.RLock()
        self._cursors_lock = threading.Lock()
        self._cursors: set[duckdb.DuckDBPyConnection] = set()
        self._log_is_whole = True
        self._closed = False
        self._claimed = self._lock_file()
        try:
            self._root = self._connect()
        except BaseException:
            self._release()
            raise
        self._broken = False

    def _lock_file(self) -> str | None:
        if self.path is None:
            return None
        claimed = str(self.path.resolve())
        with _open_lock:
            if claimed in _open_here:
                raise Conflict(f"The store '{self.path}' is already open in this process.")
            _open_here.add(claimed)
        return claimed

    def _release(self) -> None:
        with _open_lock:
            _open_here.discard(self._claimed or "")

    def _connect(self) -> duckdb.DuckDBPyConnection:
        with pass_interrupts():
            return self._open()

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self.path is None:
            root = duckdb.connect(":memory:", config=self._config)
            create_tables(root)
            return root
        if not self.path.exists():
            if self.read_only:
                raise StoreError(f"There is no store at '{self.path}'.")
            _create(self.path, self._config)
        log = self.path.with_name(self.path.name + ".wal")
        self._check_file(self.path, log)
        with translate_open_errors(self.path):
            whole = not log.exists()
            root = duckdb.connect(str(self.path), read_only=self.read_only, config=self._config)
        # A log that a kill or a full disk cut short is folded in before anything follows it:
        # now, while nobody reads, or where the disk is still full, with the next write.
        self._log_is_whole = whole or self.read_only
        if not self._log_is_whole:
            with suppress(duckdb.Error):
                root.execute("CHECKPOINT")
                self._log_is_whole = True
        return root

    def _check_file(self, path: Path, log: Path) -> None:
        """Refuse what is no store of ours; a damaged log is used up to the damage."""
        if not self.read_only and has_damaged_head(log):
            cut_log(log, 0)
        try:
            check_ours(path, self._config)
        except DamagedLogError as damage:
            if self.read_only:
                raise
            cut_log(log, damage.at)
            check_ours(path, self._config)

    @contextmanager
    def write(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open one transaction: kept when the block ends, undone when it raises."""
        with self._lock:
            self._ensure_open()
            if not self._log_is_whole:
                self.checkpoint()
            connection = self._open_cursor()
            try:
                with self._translate_errors():
                    connection.execute("BEGIN")
                    yield connection
                    connection.execute("COMMIT")
                self._protect_log()
            except BaseException:
                # What callers cached may hold what was undone.
                self.generation += 1
                self._undo(connection)
                raise
            finally:
                self._forget(connection)

    @contextmanager
    def read(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open a cursor for one question; it never blocks the writer."""
        with self._lock if self._broken else nullcontext():
            self._ensure_open()
        with self._translate_errors():
            connection = self._open_cursor()
            try:
                connection.execute("BEGIN TRANSACTION READ ONLY")
                yield connection
            except duckdb.OutOfMemoryException as error:
                if len(self._cursors) > 1:
                    raise Unavailable(
                        "The store answers too many questions at once; ask again in a moment."
                    ) from error
                raise TooLarge(
                    f"This needs more than the {self._memory_mb} MB of memory that the store may "
                    "use. Ask for less: fewer rows, a shorter span or a narrower filter."
                ) from error
            finally:
                self._undo(connection)
                self._forget(connection)

    def _protect_log(self) -> None:
        """Take the log away from others: DuckDB makes it anew whenever it needs one."""
        if self.path is not None:
            protect_file(self.path.with_name(self.path.name + ".wal"))

    def checkpoint(self) -> None:
        """Fold the log into the file, unless a reader is in the way: then next time."""
        with self._lock:
            self._ensure_open()
            connection = self._open_cursor()
            try:
                with self._translate_errors(), suppress(duckdb.TransactionException):
                    connection.execute("CHECKPOINT")
                    self._log_is_whole = True
            finally:
                self._forget(connection)

    def release_cache(self) -> None:
        """Give back the memory of pages that the file has, unless somebody reads just now."""
        with self._lock, self._cursors_lock, pass_interrupts():
            if self.path is None or self._cursors or self._broken or self._closed:
                return
            # A lower limit is the one way to have pages dropped.
            self._limit(_CACHE_KEPT_MB)
            self._limit(self._memory_mb)

    @contextmanager
    def raise_memory_limit(self, memory_limit_mb: int) -> Iterator[None]:
        """Let DuckDB use more memory for a while: to put an hour in order, not to answer."""
        self._limit(max(memory_limit_mb, self._memory_mb))
        try:
            yield
        finally:
            self._limit(self._memory_mb)

    def _limit(self, memory_mb: int) -> None:
        # Below what is in use just now it is refused, after everything else has gone.
        with self._lock, suppress(duckdb.Error):
            self._root.execute(f"SET memory_limit = '{memory_mb}MB'")

    def close(self) -> None:
        """Fold the log into the file and let it go; closing twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._shut()
            self._release()

    def _open_cursor(self) -> duckdb.DuckDBPyConnection:
        with self._cursors_lock:
            connection = self._root.cursor()
            self._cursors.add(connection)
        return connection

    def _forget(self, connection: duckdb.DuckDBPyConnection) -> None:
        with self._cursors_lock:
            self._cursors.discard(connection)
        with suppress(duckdb.Error):
            connection.close()

    def _undo(self, connection: duckdb.DuckDBPyConnection) -> None:
        # Fails where nothing was open, or DuckDB has undone it by itself.
        with pass_interrupts(), suppress(duckdb.Error):
            connection.execute("ROLLBACK")

    def _shut(self) -> None:
        """Interrupt whoever reads, wait until they have let go, and close the file."""
        deadline = time.monotonic() + _PATIENCE_S
        with self._cursors_lock:
            waiting = set(self._cursors)
        while waiting and time.monotonic() < deadline:
            waiting = {cursor for cursor in waiting if not _close_cursor(cursor)}
            time.sleep(0.002 if waiting else 0)
        self._root.close()

    def _ensure_open(self) -> None:
        if self._closed:
            raise StoreError("The store is closed.")
        if not self._broken:
            return
        # After a failed write to disk DuckDB refuses everything until the file is opened anew;
        # what was committed is in the file and its log.
        self._shut()
        self._root = self._connect()
        self._broken = False
        self.generation += 1

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            with pass_interrupts():
                yield
        except MareyError:
            raise
        except duckdb.Error as error:
            code = get_write_code(error)
            # Whatever failed on disk may have left half a line in the log: open it anew.
            if code and self.path is not None:
                self._broken = True
            raise self._make_failure(error, code) from error

    def _make_failure(self, error: Exception, code: str) -> StoreError:
        if self._closed:
            return StoreError("The store is closed.")
        if code == DISK_FULL:
            return StoreError(
                f"The disk of the store '{self.path}' is full; nothing that was kept is lost. "
                "Free some space and it goes on."
            )
        if code == DAMAGED:
            return StoreError(
                f"A part of the store '{self.path}' is damaged on disk; what lies elsewhere in it "
                "can still be read. Check the disk, then restore the file from a backup, or move "
                "it away (with its .wal and .journal) to begin anew.",
                code=DAMAGED,
            )
        line = _get_first_line(str(error))
        return StoreError(f"The store '{self.path or 'in memory'}' failed: {line}")


def _close_cursor(cursor: duckdb.DuckDBPyConnection) -> bool:
    """Return interrupt and close a cursor; False while its thread still works with it."""
    try:
        cursor.interrupt()
        cursor.close()
    except duckdb.ResourceInUseException:
        return False
    except duckdb.Error:
        # Its thread has closed it meanwhile.
        return True
    return True


def _create(path: Path, config: dict[str, Any]) -> None:
    """Create a store, complete before it has its name: a kill leaves all of it or nothing."""
    if not path.parent.is_dir():
        raise StoreError(f"The folder of the store '{path}' does not exist; create it first.")
    if path.with_name(path.name + ".wal").exists():
        raise StoreError(
            f"There is a log '{path.name}.wal' but no store '{path}': the store was moved or "
            "removed without its log. Put it back, or remove the log to begin anew."
        )
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    with translate_open_errors(path):
        draft.unlink(missing_ok=True)
        connection = duckdb.connect(str(draft), config=config)
        try:
            create_tables(connection)
        except BaseException:
            connection.close()
            draft.unlink(missing_ok=True)
            raise
        connection.close()
        protect_file(draft)
        move_file(draft, path)


def check_ours(path: Path, config: dict[str, Any]) -> None:
    """Refuse a file that is not a store of ours, without changing a byte of it."""
    advice = "Give another path, or move the file away."
    if not path.is_file():
        raise StoreError(f"'{path}' is not a file, so it cannot be a store. {advice}")
    try:
        with path.open("rb") as file:
            head = file.read(_HEADERS_BYTES)
    except OSError as error:
        raise StoreError(f"The store '{path}' cannot be read: {error.strerror}.") from None
    if head[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] != _MAGIC:
        what = "is empty" if not head else "is not a Marey store"
        raise StoreError(f"'{path}' {what}. {advice}")
    if len(head) < _HEADERS_BYTES:
        raise _make_truncated_error(path)
    with translate_open_errors(path):
        connection = duckdb.connect(str(path), read_only=True, config=config)
        try:
            _check_size(path, connection)
            _check_version(path, connection)
        finally:
            connection.close()


def _check_size(path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    # Free blocks at the end are given back to the disk while the header still counts them.
    row = fetch_one_row(connection, "SELECT block_size, used_blocks FROM pragma_database_size()")
    block_bytes, blocks = row or (0, 0)
    if path.stat().st_size < _HEADERS_BYTES + block_bytes * blocks:
        raise _make_truncated_error(path)


def _check_version(path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    ours = fetch_one_row(
        connection,
        "SELECT count(*) FROM information_schema.tables WHERE table_name = 'marey_store'",
    )
    if ours != (1,):
        raise StoreError(
            f"'{path}' is a DuckDB file, but not a Marey store. Give another path for the store."
        )
    row = fetch_one_row(connection, "SELECT max(schema_version) FROM marey_store")
    version = row[0] if row else None
    if version is None or version > SCHEMA_VERSION:
        raise StoreError(
            f"The store '{path}' has version {version}; this Marey reads up to "
            f"{SCHEMA_VERSION}. Use a newer Marey, or give another path."
        )


def _make_truncated_error(path: Path) -> StoreError:
    return StoreError(
        f"The store '{path}' is cut short or damaged, so it was left as it is. Restore it from "
        "a backup, or move it (and its .wal) away to begin anew."
    )


@contextmanager
def pass_interrupts() -> Iterator[None]:
    """Raise Ctrl-C and its like while DuckDB works, which makes errors of its own of them."""
    try:
        yield
    except (RuntimeError, duckdb.Error) as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        raise


@contextmanager
def translate_open_errors(path: Path) -> Iterator[None]:
    """Translate DuckDB's errors while a file is opened into ours."""
    try:
        yield
    except MareyError:
        raise
    except (duckdb.Error, OSError) as error:
        text, code = str(error), get_open_code(error)
        line = _get_first_line(text)
        if code == HELD:
            raise Conflict(describe_holder(path, text)) from None
        if code == OTHER_VERSION:
            raise StoreError(
                f"The store '{path}' was written by another version of DuckDB: {line}"
            ) from None
        if code:
            raise StoreError(f"The store '{path}' cannot be opened: {line}") from None
        if (at := find_damage(text)) is not None:
            raise DamagedLogError(path, at) from None
        raise _make_truncated_error(path) from error


def _get_first_line(text: str) -> str:
    return text.strip().splitlines()[0][:300] if text.strip() else "unknown error"


def fetch_arrow(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Any = None
) -> pa.Table:
    """Return the whole answer of a query as an Arrow table."""
    return connection.sql(sql, params=parameters).to_arrow_table()
