"""Every run of traces that the server knows: sent by people, or found in folders it may read."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from marey.app.access.upload_room import UploadRoom, find_room, get_sender
from marey.app.access.upload_usage import UploadUsage
from marey.app.settings.configuration import TracesSettings
from marey.app.traces.conversion_process import ConversionTask
from marey.app.traces.converter import Conversion, Converter
from marey.app.traces.received_files import (
    FACTS_SUFFIX,
    FILES_LIMIT,
    PieceWriter,
    ReceivedFiles,
)
from marey.app.traces.run_folders import find_run_folders
from marey.app.traces.trace_documents import (
    Origin,
    RunRecord,
    RunState,
    TraceFile,
    TraceLimits,
    TraceRunSummary,
)
from marey.model.access.senders import check_sender, may_change
from marey.model.errors import Conflict, InvalidInput, NotFound, shown
from marey.model.names import DEFAULT_CLUSTER, NAME_LIMIT
from marey.model.system.atomic_file import write_file
from marey.model.system.private_files import make_private_folder
from marey.model.times import HOUR_MS
from marey.trace.report.verdict_words import title
from marey.trace.views.view_files import RunViews

MEGABYTE = 1_000_000
# Opened runs that stay mapped; a run is some files, not its bytes.
OPEN_RUNS = 8
_RECORD = "run.json"
# Folders on their way out.
_DELETED = ".deleted-"
_WHAT = "This is a run"


@dataclass(frozen=True)
class RunChange:
    """What a person changes about a run; None leaves it."""

    name: str | None = None
    workload: str | None = None
    cluster: str | None = None


@dataclass
class TraceLibrary:
    """The runs, each in a folder of its own below ``root``."""

    root: Path
    settings: TracesSettings = field(default_factory=TracesSettings)
    # Whether there is such a workload; the recording's own word is taken only if there is.
    is_workload: Callable[[str, str], bool] = lambda cluster, workload: True
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    # Which runs whoever asks may see, and who that is.
    is_visible: Callable[[RunRecord], bool] = lambda record: True
    by: str = ""
    shows_folders: bool = True
    # Makes the files of a demo run that has none yet.
    make_demo: Callable[[RunRecord, Path], None] | None = None
    # Lists the demo runs of faults that have begun since.
    find_demo: Callable[[], None] | None = None
    # Told of every run that can be looked at from now on.
    on_ready: Callable[[str], None] | None = None
    _converter: Converter = field(default_factory=Converter)
    _open: OrderedDict[str, tuple[int, RunViews]] = field(default_factory=OrderedDict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _cleaned_ms: int = 0
    _usage: UploadUsage = field(default_factory=lambda: UploadUsage(FACTS_SUFFIX))
    # Ids of deleted runs: what is found again and again must not come back.
    _deleted: set[str] = field(default_factory=set)

    # Runs

    def list_runs(self, workload: str = "", cluster: str = "") -> list[TraceRunSummary]:
        """Return the runs, newest first, of one workload or cluster where named."""
        self.clean()
        if self.find_demo is not None:
            self.find_demo()
        found = [*self._records(), *self._find_unconverted()]
        kept = [
            record
            for record in found
            if self.is_visible(record)
            and (not workload or record.workload == workload)
            and (not cluster or record.cluster == cluster)
        ]
        kept.sort(key=lambda record: (-record.created_ms, record.id))
        return [self.summarise(record) for record in kept]

    def _records(self) -> list[RunRecord]:
        if not self.root.is_dir():
            return []
        names = [e.name for e in os.scandir(self.root) if e.is_dir() and not e.name.startswith(".")]
        return [record for name in names if (record := self._load(name)) is not None]

    def _find_unconverted(self) -> list[RunRecord]:
        """Find runs in allowed folders that nobody has touched yet."""
        return [
            record
            for path, modified_ms in find_run_folders(self.settings.folders)
            if not (self.root / (record := _make_record(path, modified_ms)).id / _RECORD).exists()
        ]

    def _load(self, run: str) -> RunRecord | None:
        try:
            return msgspec.json.decode((self.root / run / _RECORD).read_bytes(), type=RunRecord)
        except (OSError, msgspec.MsgspecError):
            return None

    def get(self, run: str) -> RunRecord:
        """Return one run; an error where there is none, or none any more."""
        if run.isalnum() and len(run) <= 40:
            found = self._load(run)
            if found is None:
                found = next((one for one in self._find_unconverted() if one.id == run), None)
            if found is not None and self.is_visible(found):
                return found
        raise NotFound(f"There is no run '{shown(run)}'; it may have been deleted.")

    def create(self, name: str, *, workload: str = "", cluster: str = "") -> RunRecord:
        """Return a new run that files can be sent to."""
        return self._add(name, workload=workload, cluster=cluster, origin="upload")

    def _add(self, name: str, *, workload: str, cluster: str, origin: Origin) -> RunRecord:
        self._check_workload(cluster or DEFAULT_CLUSTER, workload)
        record = RunRecord(
            id=secrets.token_hex(8),
            name=_check_name(name),
            cluster=cluster or DEFAULT_CLUSTER,
            workload=workload,
            origin=origin,
            state="uploading",
            created_ms=self.now_ms(),
            attached_by="person" if workload else "",
            by=self.by or get_sender(),
        )
        self._save(record)
        return record

    def add_demo(self, record: RunRecord) -> None:
        """Add a run whose files are made when somebody first opens it."""
        if record.id not in self._deleted and self._load(record.id) is None:
            self._save(record)

    def _check_workload(self, cluster: str, workload: str) -> None:
        if workload and not self.is_workload(cluster, workload):
            raise NotFound(f"There is no workload '{shown(workload)}' in '{shown(cluster)}'.")

    def change(self, run: str, change: RunChange) -> RunRecord:
        """Rename a run, or attach it to another workload; "" detaches it."""
        with self._lock:
            record = self._get_own(run)
            cluster = record.cluster if change.cluster is None else change.cluster
            if change.workload is not None:
                self._check_workload(cluster, change.workload)
                record.workload = change.workload
                record.attached_by = "person"
            record.cluster = cluster or DEFAULT_CLUSTER
            if change.name is not None:
                record.name = _check_name(change.name)
            self._save(record)
            return record

    def delete(self, run: str) -> None:
        """Forget a run and everything made of it; traces in a folder stay where they are."""
        check_sender(self.get(run).by, _WHAT)
        self._remove(run)

    def _get_own(self, run: str) -> RunRecord:
        """Return a run that whoever asks may change: what lies in a folder is nobody's."""
        record = self.get(run)
        if record.by:
            check_sender(record.by, _WHAT)
        return record

    def _remove(self, run: str) -> None:
        self._converter.cancel(run)
        with self._lock:
            self._open.pop(run, None)
            self._deleted.add(run)
            self._usage.forget(self._files_folder(run))
            folder = self.root / run
            if folder.is_dir():
                gone = self.root / f"{_DELETED}{run}-{secrets.token_hex(4)}"
                folder.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)

    def _save(self, record: RunRecord) -> None:
        folder = self.root / record.id
        make_private_folder(self.root)
        make_private_folder(folder)
        draft = folder / f".{_RECORD}.{secrets.token_hex(4)}"
        write_file(folder / _RECORD, msgspec.json.encode(record), draft=draft)

    def summarise(self, record: RunRecord) -> TraceRunSummary:
        """Return the summary that the list shows of a run."""
        under_way = self._converter.find(record.id)
        if record.state in ("converting", "waiting") and (under_way is None or under_way.over):
            # It may have begun or ended since the record was read: both are written under the lock.
            with self._lock:
                record = self._load(record.id) or record
                under_way = self._converter.find(record.id)
        files, size = self._measure(record)
        first = record.verdicts[0] if record.verdicts else None
        state: RunState = record.state
        if under_way is not None and not under_way.over:
            state = "waiting" if under_way.doing == "waiting" else "converting"
        elif state in ("converting", "waiting"):
            state = "cancelled" if under_way is None else "converting"
        return TraceRunSummary(
            id=record.id,
            name=record.name,
            cluster=record.cluster,
            workload=record.workload,
            origin=record.origin,
            state=state,
            progress=1.0 if state == "ready" else under_way.progress if under_way else 0.0,
            doing=under_way.doing if under_way else "",
            error=record.error,
            ranks=record.ranks,
            steps=record.steps,
            files=files,
            bytes=size,
            created_ms=record.created_ms,
            start_ms=record.start_ms,
            end_ms=record.end_ms,
            verdict=title(first) if first else "",
            verdict_kind=first["kind"] if first else "",
            warnings=record.warnings,
            may_change=not record.by or may_change(record.by),
        )

    def _measure(self, record: RunRecord) -> tuple[int, int]:
        folder = Path(record.path) if record.path else self.root / record.id / "files"
        if not folder.is_dir():
            return 0, 0
        sizes = [
            entry.stat().st_size
            for entry in os.scandir(folder)
            if entry.is_file() and not entry.name.endswith(FACTS_SUFFIX)
        ]
        return len(sizes), sum(sizes)

    # Files

    def files(self, run: str, name: str = "") -> list[TraceFile]:
        """Return the files that were sent to a run, or the one that is named, if it is there.

        Who sends 16,384 files asks about one at a time.
        """
        received = self._open_received(self.get(run))
        if not name:
            return received.list_files()
        try:
            return [received.get_file(name)]
        except NotFound:
            return []

    @contextmanager
    def receive(self, run: str, name: str, offset: int, size: int) -> Iterator[PieceWriter]:
        """Take in bytes of one file."""
        record = self._get_own(run)
        if record.origin != "upload":
            raise Conflict("Files can only be sent to a run that was made for uploads.")
        room = self._find_room(record.by)
        room.check(size - offset)
        with self._open_received(record).receive(name, offset, size, room.bytes) as writer:
            yield writer

    def get_file(self, run: str, name: str) -> TraceFile:
        """Return one file of a run."""
        return self._open_received(self.get(run)).get_file(name)

    def remove_file(self, run: str, name: str) -> None:
        """Forget one file of a run."""
        self._open_received(self._get_own(run)).remove(name)

    def restore_names(self, run: str, texts: list[str]) -> list[str]:
        """Return texts in which a run's files are called as they were when they were sent."""
        received = self._open_received(self.get(run))
        return [received.restore_names(text) for text in texts]

    def _open_received(self, record: RunRecord) -> ReceivedFiles:
        limit = self.settings.file_limit_mb * MEGABYTE
        return ReceivedFiles(self._files_folder(record.id), limit, self._usage)

    def _files_folder(self, run: str) -> Path:
        return self.root / run / "files"

    def _find_room(self, by: str) -> UploadRoom:
        mine = [record.id for record in self._records() if record.by == by]
        return find_room(
            self.root,
            total=self.settings.total_limit_mb * MEGABYTE - self._count_used(),
            own=self.settings.user_limit_mb * MEGABYTE - self._count_used(mine),
        )

    def _count_used(self, runs: Sequence[str] | None = None) -> int:
        if not self.root.is_dir():
            return 0
        names = [e.name for e in os.scandir(self.root) if e.is_dir()] if runs is None else runs
        return self._usage.count_bytes(self._files_folder(name) for name in names)

    def limits(self) -> TraceLimits:
        """Return the limits on uploads, and how long they are kept."""
        return TraceLimits(
            files=FILES_LIMIT,
            file_bytes=self.settings.file_limit_mb * MEGABYTE,
            total_bytes=self.settings.total_limit_mb * MEGABYTE,
            used_bytes=self._count_used(),
            retention_ms=self.settings.retention_ms,
            folders=list(self.settings.folders) if self.shows_folders else [],
        )

    # Conversion

    def convert(self, run: str) -> RunRecord:
        """Convert a run in the background; nothing happens where that is under way already."""
        with self._lock:
            record = self.get(run)
            if self._converter.find(run) is not None:
                return record
            paths = self._paths(record)
            record.state, record.error = "converting", ""
            self._save(record)
            folder = self.root / run
            task = ConversionTask(paths, str(folder / "cache"), str(folder / "views"))
            self._converter.start(run, task, self._finish)
            return record

    def _paths(self, record: RunRecord) -> list[str]:
        if record.path:
            return [record.path]
        if record.origin == "demo" and self.make_demo is not None:
            folder = self.root / record.id / "files"
            if not folder.is_dir():
                self.make_demo(record, folder)
            return [str(folder)]
        files = self._open_received(record)
        partial = [file.file for file in files.list_files() if file.state != "complete"]
        if partial:
            raise Conflict(
                f"{len(partial)} files are not complete, such as '{shown(partial[0])}'; "
                "send the rest of them or remove them."
            )
        paths = files.complete_paths()
        if not paths:
            raise InvalidInput("This run has no files yet; send some first.")
        return [str(path) for path in paths]

    def _finish(self, conversion: Conversion) -> None:
        with self._lock:
            record = self._load(conversion.run)
            if record is None:
                return
            if conversion.cancelled:
                record.state = "cancelled"
            elif conversion.result is None:
                record.state = "failed"
                record.error = self._open_received(record).restore_names(conversion.error)
            else:
                self._take_over(record, conversion)
            self._open.pop(record.id, None)
            self._save(record)
        if record.state == "ready" and self.on_ready is not None:
            self.on_ready(record.id)

    def _take_over(self, record: RunRecord, conversion: Conversion) -> None:
        result = conversion.result
        assert result is not None
        record.state = "ready"
        record.ranks, record.steps = result.ranks, result.steps
        record.start_ms, record.end_ms = result.start_ms, result.end_ms
        if record.origin == "demo" and result.start_ms is not None and result.end_ms is not None:
            # Simulated time: the recording stands where the workload was slow.
            record.end_ms = record.created_ms + result.end_ms - result.start_ms
            record.start_ms = record.created_ms
        record.verdicts, record.warnings = result.verdicts, result.warnings
        cluster = result.cluster or record.cluster
        if (
            result.workload
            and not record.attached_by
            and self.is_workload(cluster, result.workload)
        ):
            record.workload, record.cluster = result.workload, cluster
            record.attached_by = "recording"

    def cancel(self, run: str) -> RunRecord:
        """Stop a conversion."""
        record = self._get_own(run)
        self._converter.cancel(run)
        return record

    # Views

    def views(self, run: str) -> RunViews:
        """Return the views of a run; the newest ones opened stay mapped."""
        record = self.get(run)
        folder = self.root / run / "views"
        try:
            made = (folder / "index.json").stat().st_mtime_ns
        except OSError:
            words = {"failed": f"It could not be converted: {record.error}"}
            raise NotFound(
                words.get(record.state, "This run has not been converted yet; convert it first."),
                code="not_converted",
            ) from None
        with self._lock:
            known = self._open.get(run)
            if known is None or known[0] != made:
                known = self._open[run] = (made, RunViews(folder))
            self._open.move_to_end(run)
            while len(self._open) > OPEN_RUNS:
                self._open.popitem(last=False)
            return known[1]

    def trace_paths(self, run: str) -> tuple[list[str], Path]:
        """Return a run's trace files and where their converted tables are."""
        return self._paths(self.get(run)), self.root / run / "cache"

    def clean(self) -> None:
        """Delete runs past their retention; at most once an hour.

        Traces in a folder of the site have no age here: what was made of them goes when they go.
        """
        now_ms = self.now_ms()
        if now_ms - self._cleaned_ms < HOUR_MS:
            return
        self._cleaned_ms = now_ms
        for record in self._records():
            aged = now_ms - record.created_ms > self.settings.retention_ms
            if not Path(record.path).is_dir() if record.path else aged:
                self._remove(record.id)
        # Left by a server that ended while it deleted.
        for left in self.root.glob(f"{_DELETED}*"):
            shutil.rmtree(left, ignore_errors=True)

    def open_demo(self, run: str) -> None:
        """Convert a demo's run when it is first looked at, by whomever: its files are made up."""
        record = self.get(run)
        if record.origin == "demo" and record.state == "found":
            self.convert(run)

    def close(self) -> None:
        """Stop conversions."""
        self._converter.close()


def _make_record(path: Path, modified_ms: int) -> RunRecord:
    digest = hashlib.blake2b(str(path).encode("utf-8", "replace"), digest_size=8).hexdigest()
    return RunRecord(
        id=f"f{digest}",
        name=path.name[:NAME_LIMIT],
        cluster=DEFAULT_CLUSTER,
        workload="",
        origin="folder",
        state="found",
        created_ms=modified_ms,
        path=str(path),
    )


def _check_name(name: str) -> str:
    if not name.strip() or len(name) > NAME_LIMIT or not name.isprintable():
        raise InvalidInput(
            f"'{shown(name)}' is not a valid run name; "
            f"allowed: 1 to {NAME_LIMIT} printable characters."
        )
    return name.strip()
