"""Files, runs, predictions and background work as a scope sees them: one's own, and known work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from marey.app.history.background_jobs import BackgroundWork, Job
from marey.app.history.uploads import Receiver, UploadedFile, Uploads
from marey.app.privacy.private_store import PrivateStore
from marey.app.traces.trace_documents import RunRecord
from marey.app.traces.trace_library import TraceLibrary
from marey.app.traces.what_if.replays import ReplayQueries
from marey.model.errors import Conflict, NotFound, shown
from marey.model.names import DEFAULT_CLUSTER

_TRACE = "trace:"


class PrivateUploads(Uploads):
    """Traces of workloads that are known, and whatever one has sent oneself."""

    def __init__(self, whole: Uploads, store: PrivateStore, user: str) -> None:
        self._whole = whole
        self._store = store
        self._user = user

    def folder(self, owner: str) -> Path:
        """Return where the owner's files are."""
        return self._whole.folder(owner)

    def files(self, owner: str) -> list[UploadedFile]:
        """Return the owner's files; none where they are not shown."""
        files = self._whole.files(owner)
        if owner.startswith(_TRACE) and self._knows(owner):
            return files
        return [file for file in files if file.by and file.by == self._user]

    def _knows(self, owner: str) -> bool:
        return self._store.knows_workload(DEFAULT_CLUSTER, owner.removeprefix(_TRACE))

    def owners(self, prefix: str) -> list[str]:
        """Return who has files that are shown."""
        return [owner for owner in self._whole.owners(prefix) if self.files(owner)]

    @contextmanager
    def receiving(self, owner: str, name: str, by: str = "") -> Iterator[Receiver]:
        """Take a file in; others' files are never replaced."""
        if owner.startswith(_TRACE) and not self._knows(owner):
            raise NotFound(f"There is no workload '{shown(owner.removeprefix(_TRACE))}' of yours.")
        if not owner.startswith(_TRACE) and len(self.files(owner)) < len(self._whole.files(owner)):
            raise Conflict(f"'{shown(owner)}' is taken; choose another name.")
        with self._whole.receiving(owner, name, by or self._user) as receiver:
            yield receiver

    def as_named(self, owner: str, name: str) -> Path:
        """Return the file under the name it was sent with."""
        self.file(owner, name)
        return self._whole.as_named(owner, name)

    def remove(self, owner: str, name: str | None = None) -> None:
        """Forget one file, or all that the owner has."""
        if not self.files(owner):
            raise NotFound(f"There are no uploaded files of '{shown(owner)}'.")
        if name is not None:
            self.file(owner, name)
        self._whole.remove(owner, name)


def make_run_check(store: PrivateStore, user: str) -> Callable[[RunRecord], bool]:
    """Return which runs are shown: those of known work, and those one has sent."""

    def is_visible(record: RunRecord) -> bool:
        if record.by and record.by == user:
            return True
        return bool(record.workload) and store.knows_workload(record.cluster, record.workload)

    return is_visible


def make_private_traces(whole: TraceLibrary, store: PrivateStore, user: str) -> TraceLibrary:
    """Return the library of a scope: the same folders and conversions, fewer runs."""
    return replace(
        whole,
        is_workload=store.knows_workload,
        is_visible=make_run_check(store, user),
        by=user,
        shows_folders=False,
        on_ready=None,
    )


def make_private_replays(whole: ReplayQueries, traces: TraceLibrary) -> ReplayQueries:
    """Return the replays of a scope's runs, and the predictions made from them."""

    def is_visible(run: str) -> bool:
        try:
            traces.get(run)
        except NotFound:
            return False
        return True

    book = replace(whole.book, is_visible=is_visible)
    return replace(whole, paths=traces.trace_paths, book=book)


class PrivateBackground(BackgroundWork):
    """The background work that one has started oneself."""

    def __init__(self, whole: BackgroundWork, user: str) -> None:
        self._whole = whole
        self._user = user

    def start(self, what: str, work: Callable[[Job], Any], by: str = "") -> Job:
        """Put work in line."""
        return self._whole.start(what, work, by or self._user)

    def job(self, name: str) -> Job:
        """Return the job of this number; others' are not found."""
        found = next((job for job in self.jobs() if job.id == name), None)
        if found is None:
            raise NotFound(f"There is no job '{shown(name)}'.")
        return found

    def jobs(self) -> list[Job]:
        """Return one's own jobs, oldest first."""
        return [job for job in self._whole.jobs() if job.by and job.by == self._user]

    def close(self) -> None:
        """Leave the work to the server."""
