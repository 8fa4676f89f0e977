"""The weekly digest by itself: made and mailed when it is due, once, over restarts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from marey.app.people.digest import AskDigest, Digest
from marey.app.people.digest_text import print_digest_html, print_digest_text, write_subject
from marey.app.queries.workspace import Workspace
from marey.app.rules.finding_documents import PlannedDigest
from marey.model.errors import MareyError, NotFound
from marey.model.protocols import WorkloadQuery
from marey.model.times import DAY_MS, MINUTE_MS
from marey.notify.digest_plans import EVERYONE, DigestPlan, describe_plan
from marey.notify.receivers import Mail

log = logging.getLogger(__name__)

KIND = "digest"
DAYS = 7
# How often it is looked whether one is due.
PAUSE_S = 30.0
RETRY_MS = 10 * MINUTE_MS
# What could not be sent in this time is given up until next week.
PATIENCE_MS = DAY_MS
# Of every user or project those with jobs in the week, as many at most.
MOST_NAMES = 5_000
MOST_JOBS = 200_000


def send_digest(digest: Digest, mail: Mail, to: Sequence[str], url: str) -> tuple[str, ...]:
    """Send the digest as a mail with text and HTML; return who gets it."""
    receivers = tuple(to or mail.to)
    message = mail.make_message(write_subject(digest), receivers)
    message.set_content(print_digest_text(digest))
    message.add_alternative(print_digest_html(digest, url), subtype="html")
    mail.send(message)
    return receivers


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How far the sending of one week has come."""

    # The last due moment that is settled: sent, given up, or before the plan was made.
    settled_ms: int
    sent_ms: int | None = None
    tried_ms: int = 0
    # Names that have got theirs while others have not.
    done: tuple[str, ...] = ()
    error: str = ""


class ScheduledDigests:
    """Sends what the notify file plans; nothing while ``dry_run``."""

    def __init__(
        self, workspace: Workspace, plans: Sequence[DigestPlan], *, dry_run: bool = False
    ) -> None:
        self._workspace = workspace
        self._plans = plans
        self._dry_run = dry_run
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look from time to time whether a digest is due, if any is planned."""
        if self._plans:
            self._thread = threading.Thread(target=self._run, name="digests", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Finish the mail in hand."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=30)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.run_due(self._workspace.now_ms())
            except Exception:
                log.exception("digests could not be sent at this moment")
            self._stop.wait(PAUSE_S)

    def run_due(self, now_ms: int) -> None:
        """Send every digest that is due and has not been sent."""
        for plan in self._plans:
            before = self._read(plan, now_ms)
            due_ms = plan.find_last_due(now_ms)
            if due_ms > before.settled_ms and now_ms - before.tried_ms >= RETRY_MS:
                self._keep(plan, self._send(plan, before, due_ms, now_ms))

    def list_documents(self) -> list[PlannedDigest]:
        """Return the planned digests, each with its next time and its last outcome."""
        now_ms = self._workspace.now_ms()
        rows = []
        for plan in self._plans:
            known = self._read(plan, now_ms)
            words = describe_plan(plan)
            rows.append(
                PlannedDigest(
                    subject=words["subject"],
                    when=words["when"],
                    receiver=plan.mail.name,
                    to=list(plan.to),
                    next_ms=plan.find_next_due(now_ms),
                    sent_ms=known.sent_ms,
                    error=known.error,
                )
            )
        return rows

    def _send(self, plan: DigestPlan, before: _Outcome, due_ms: int, now_ms: int) -> _Outcome:
        if self._dry_run:
            log.info("a digest was due; dry_run is on, so it was not sent")
            return _Outcome(due_ms, before.sent_ms, now_ms)
        done, error = list(before.done), ""
        for name in self._list_names(plan, now_ms):
            if name in before.done or self._stop.is_set():
                continue
            try:
                self._send_one(plan, name)
                done.append(name)
            except MareyError as problem:
                error = str(problem)
        if not error and not self._stop.is_set():
            return _Outcome(due_ms, now_ms, now_ms)
        settled_ms = due_ms if now_ms - due_ms > PATIENCE_MS else before.settled_ms
        kept = () if settled_ms == due_ms else tuple(done)
        return _Outcome(settled_ms, before.sent_ms, now_ms, kept, error)

    def _send_one(self, plan: DigestPlan, name: str) -> None:
        to = plan.list_addresses(name)
        if not to:
            return
        try:
            digest = AskDigest(plan.subject, name, plan.cluster, DAYS).ask(self._workspace)
        except NotFound:
            # Whoever had no jobs in two weeks gets no mail about them.
            return
        send_digest(digest, plan.mail, to, plan.url)

    def _list_names(self, plan: DigestPlan, now_ms: int) -> Iterator[str]:
        """Yield the names that a plan sends a digest of: the one it names, or all with jobs."""
        if plan.name != EVERYONE:
            yield plan.name
            return
        query = WorkloadQuery(plan.cluster, from_ms=now_ms - DAYS * DAY_MS, limit=MOST_JOBS)
        names = set(self._workspace.workloads(query)[plan.subject].to_pylist())
        yield from sorted(name for name in names if name)[:MOST_NAMES]

    def _read(self, plan: DigestPlan, now_ms: int) -> _Outcome:
        try:
            known = self._workspace.store.document(KIND, plan.key)
        except NotFound:
            # A plan that is new says nothing of the week before it.
            first = _Outcome(settled_ms=now_ms)
            self._keep(plan, first)
            return first
        return _Outcome(**{**known, "done": tuple(known["done"])})

    def _keep(self, plan: DigestPlan, outcome: _Outcome) -> None:
        document = {
            "settled_ms": outcome.settled_ms,
            "sent_ms": outcome.sent_ms,
            "tried_ms": outcome.tried_ms,
            "done": list(outcome.done),
            "error": outcome.error,
        }
        self._workspace.store.put_document(KIND, plan.key, document)
