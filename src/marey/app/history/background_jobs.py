"""Work that outlives a request: one thread, progress to look at, cancel at any time."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from marey.app.access.upload_room import get_sender
from marey.model.access.senders import check_sender
from marey.model.documents import Document
from marey.model.errors import MareyError, NotFound, TooLarge, shown

log = logging.getLogger(__name__)

KEPT_JOBS = 100
WAITING_LIMIT = 20
# Nobody takes every place in the line.
WAITING_PER_USER = 12


JobState = Literal["waiting", "running", "done", "failed", "cancelled"]


class JobDocument(Document):
    """A job as the API shows it; its kind decides what the result is."""

    id: str
    what: str
    state: JobState
    done: float
    total: float
    error: str
    result: Annotated[
        Any,
        Meta(
            description="Null until it is done; then what the kind of job makes: of traces the "
            "document of `marey trace report --json`.",
            extra_json_schema={
                "anyOf": [
                    {"$ref": "#/components/schemas/BacktestResult"},
                    {"$ref": "#/components/schemas/ImportDocument"},
                    {"$ref": "#/components/schemas/StrategySearch"},
                    {"type": "object", "title": "TraceReport"},
                    {"type": "null"},
                ]
            },
        ),
    ]


class Cancelled(Exception):
    """The job was asked to stop."""


@dataclass(slots=True)
class Job:
    """One piece of work; the worker calls ``progress`` often, and is stopped there."""

    id: str
    what: str
    state: JobState = "waiting"
    done: float = 0.0
    total: float = 1.0
    error: str = ""
    result: Any = None
    # Who started it.
    by: str = ""
    _cancel: threading.Event = field(default_factory=threading.Event)

    def progress(self, done: float, total: float | None = None) -> None:
        """Report how far the work is; raises ``Cancelled`` when it is to stop."""
        self.done = done
        if total is not None:
            self.total = total
        if self._cancel.is_set():
            raise Cancelled

    def cancel(self) -> None:
        """Stop at the next progress, or never start."""
        self._cancel.set()

    @property
    def over(self) -> bool:
        """Return whether nothing more will happen."""
        return self.state in ("done", "failed", "cancelled")

    def document(self) -> JobDocument:
        """Return the document that the API answers."""
        return JobDocument(
            id=self.id,
            what=self.what,
            state=self.state,
            done=self.done,
            total=self.total,
            error=self.error,
            result=self.result if self.state == "done" else None,
        )


class BackgroundWork:
    """Jobs one after another in a thread of their own; the last ones are remembered."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="background")
        self._jobs: dict[str, Job] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def start(self, what: str, work: Callable[[Job], Any], by: str = "") -> Job:
        """Put work in line; refused when too much waits already, of one person or of all."""
        by = by or get_sender()
        with self._lock:
            waiting = [job for job in self._jobs.values() if not job.over]
            if len(waiting) >= WAITING_LIMIT:
                raise TooLarge(f"Already {WAITING_LIMIT} jobs wait; let some finish first.")
            if sum(job.by == by for job in waiting) >= WAITING_PER_USER:
                raise TooLarge(f"{WAITING_PER_USER} jobs of yours wait; let some finish first.")
            job = Job(str(next(self._numbers)), what, by=by)
            self._jobs[job.id] = job
            self._forget_old()
        self._thread.submit(self._run, job, work)
        return job

    def _forget_old(self) -> None:
        over = [job.id for job in self._jobs.values() if job.over]
        for name in over[: max(0, len(self._jobs) - KEPT_JOBS)]:
            del self._jobs[name]

    def _run(self, job: Job, work: Callable[[Job], Any]) -> None:
        try:
            job.progress(0.0)
            job.state = "running"
            job.result = work(job)
            job.done, job.state = job.total, "done"
        except Cancelled:
            job.state = "cancelled"
        except MareyError as error:
            job.state, job.error = "failed", str(error)
        except Exception as error:
            log.exception("background work failed: %s", shown(job.what))
            job.state, job.error = "failed", f"{type(error).__name__}: {shown(str(error))}"

    def job(self, name: str) -> Job:
        """Return the job of this number."""
        found = self._jobs.get(name)
        if found is None:
            raise NotFound(f"There is no job '{shown(name)}'.")
        return found

    def cancel(self, name: str) -> Job:
        """Stop a job of one's own, at its next progress."""
        found = self.job(name)
        check_sender(found.by, "This is a task")
        found.cancel()
        return found

    def jobs(self) -> list[Job]:
        """Return every job that is remembered, oldest first."""
        return list(self._jobs.values())

    def close(self) -> None:
        """Cancel everything and wait for the job in hand to notice."""
        for job in self.jobs():
            job.cancel()
        self._thread.shutdown(wait=True, cancel_futures=True)
