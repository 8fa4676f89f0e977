"""A back-test from outside: run on the store's file, or by the server that holds it as its job."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marey.app.asking import ask, request_server
from marey.app.rule_questions import AskBacktest, run_backtest
from marey.app.workspace import Workspace
from marey.model.errors import Conflict, MareyError, Unavailable
from marey.store.holder import Holder, holder

POLL_S = 0.2
Report = Callable[[float], None]


def backtest_of(path: Path, question: AskBacktest, report: Report) -> dict[str, Any]:
    """The answer; the share (0-1) that is done is told on the way. Ctrl-C ends the server's job."""
    server = holder(path)
    if server is None:
        answer: dict[str, Any] = ask(path, _Reported(question, report))
        return answer
    job = request_server(server, "POST", "/backtests", question.body())
    try:
        return _result(server, job, report)
    except BaseException:
        _cancel(server, job["id"])
        raise


@dataclass(frozen=True)
class _Reported:
    """A back-test that says how far it is."""

    question: AskBacktest
    report: Report

    def ask(self, workspace: Workspace) -> dict[str, Any]:
        """The findings."""
        mine = self.question
        chosen = mine.rules(workspace)
        return run_backtest(workspace, chosen, mine.cluster, mine.since, progress=self.report)

    def path(self) -> str:
        """Where the API answers the same question."""
        return self.question.path()

    def query(self) -> dict[str, str]:
        """The parameters of that request."""
        return self.question.query()


def _result(server: Holder, job: dict[str, Any], report: Report) -> dict[str, Any]:
    while job["state"] in ("waiting", "running"):
        time.sleep(POLL_S)
        job = request_server(server, "GET", f"/tasks/{job['id']}")
        report(job["done"] / (job["total"] or 1.0))
    if job["state"] == "cancelled":
        raise Conflict("The back-test was cancelled on the server.")
    if job["state"] != "done":
        raise Unavailable(f"The back-test failed on the server: {job['error']}")
    result: dict[str, Any] = job["result"]
    return result


def _cancel(server: Holder, job: str) -> None:
    try:
        request_server(server, "DELETE", f"/tasks/{job}")
    except MareyError:
        # Over by now, or the server is gone: there is nothing left to cancel.
        return
