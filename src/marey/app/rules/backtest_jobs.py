"""A back-test from outside: run on the store's file, or by the server that holds it as its job."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from marey.app.queries.server_client import Place, ask, find_place_server, request_server
from marey.app.queries.workspace import Workspace
from marey.app.rules.rule_documents import BacktestResult
from marey.app.rules.rule_queries import AskBacktest, run_backtest
from marey.model.errors import Conflict, MareyError, Unavailable
from marey.store.holder import StoreHolder

POLL_S = 0.2
Report = Callable[[float], None]


def run_backtest_job(place: Place, question: AskBacktest, report: Report) -> dict[str, Any]:
    """Return the answer.

    The share (0-1) that is done is reported on the way. Ctrl-C ends the server's job.
    """
    server = find_place_server(place)
    if server is None:
        answer: dict[str, Any] = ask(place, _Reported(question, report))
        return answer
    job = request_server(server, "POST", "/backtests", question.body())
    try:
        return _await_result(server, job, report)
    except BaseException:
        _cancel(server, job["id"])
        raise


@dataclass(frozen=True)
class _Reported:
    """A back-test that says how far it is."""

    question: AskBacktest
    report: Report

    def ask(self, workspace: Workspace) -> BacktestResult:
        """Return the findings."""
        mine = self.question
        chosen = mine.rules(workspace)
        return run_backtest(workspace, chosen, mine.cluster, mine.since, progress=self.report)

    def path(self) -> str:
        """Return the API path that answers it."""
        return self.question.path()

    def query(self) -> dict[str, str]:
        """Return the parameters of the request."""
        return self.question.query()


def _await_result(server: StoreHolder, job: dict[str, Any], report: Report) -> dict[str, Any]:
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


def _cancel(server: StoreHolder, job: str) -> None:
    try:
        request_server(server, "DELETE", f"/tasks/{job}")
    except MareyError:
        # Over by now, or the server is gone: there is nothing left to cancel.
        return
