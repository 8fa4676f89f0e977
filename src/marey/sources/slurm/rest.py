"""slurmrestd: the same documents over HTTP, with a JSON web token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from marey.model.errors import InvalidInput, Unavailable
from marey.model.inventory import Partition
from marey.sources.http_fetch import Fetcher, FetchRules, parse_address, run_on
from marey.sources.slurm.factors import Factors
from marey.sources.slurm.history import PastJob, parse_history
from marey.sources.slurm.shares import parse_shares_document
from marey.sources.slurm.slurm_json import (
    Job,
    Node,
    SlurmReservation,
    find_slurm_code,
    parse_document,
)
from marey.sources.slurm.slurm_nodes import make_partition
from marey.sources.slurm.token import ControllerToken
from marey.sources.slurm.values import parse_time_ms
from marey.sources.slurm.versions import About

# Newest first; 0.0.38 came with 22.05, 0.0.43 with 25.05, 0.0.44 with 25.11.
VERSIONS = ("0.0.44", "0.0.43", "0.0.42", "0.0.41", "0.0.40", "0.0.39", "0.0.38")
BODY_LIMIT = 1 << 30


class SlurmRestClient:
    """Asks slurmrestd; which version of its interface is found by asking.

    A token given as a function is read anew before each question.
    """

    def __init__(
        self, url: str, user: str, token: str | Callable[[], str], timeout_s: float = 30.0
    ) -> None:
        if not user or not all(33 <= ord(c) < 127 for c in user):
            raise InvalidInput("The Slurm user is empty or holds what a header may not.")
        parse_address(url)
        self._url = url.rstrip("/")
        self._user = user
        self._token = ControllerToken(token if callable(token) else lambda: token)
        self._token.check()
        self._rules = FetchRules(timeout_s, at_once=1, kept=1, limit=BODY_LIMIT)
        self._loop = asyncio.new_event_loop()
        self._fetcher: Fetcher | None = None
        self._sent = ""
        self._version = ""

    def nodes(self) -> list[Node]:
        """Return every node."""
        return parse_document(self._get("nodes"), "nodes").nodes or []

    def jobs(self) -> list[Job]:
        """Return every job that the controller still remembers."""
        return parse_document(self._get("jobs"), "jobs").jobs or []

    def partitions(self) -> list[Partition]:
        """Return every partition that this user may see."""
        found = parse_document(self._get("partitions"), "partitions").partitions or []
        return [make_partition(partition) for partition in found]

    def reservations(self) -> list[SlurmReservation]:
        """Return every reservation that this user may see."""
        return parse_document(self._get("reservations"), "reservations").reservations or []

    def factors(self) -> Mapping[int, Factors] | None:
        """Return nothing: slurmrestd of no version says what a priority is made of."""
        return None

    def shares(self) -> Mapping[str, float]:
        """Return the share of the cluster that each account is meant to have (from 0.0.40 on)."""
        return parse_shares_document(self._get("shares"))

    def about(self) -> About:
        """Return the controller's version and clock; slurmrestd does not tell its privacy."""
        try:
            document = msgspec.json.decode(self._get("diag"))
            reported = document["statistics"]["req_time"]
            meta = document.get("meta", {})
            release = (meta.get("slurm") or meta.get("Slurm") or {}).get("release", "")
        except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
            raise Unavailable(f"slurmrestd's diag cannot be read: {error}") from None
        return About(str(release), (), parse_time_ms(reported))

    def ended(self, jobs: Sequence[int], since_ms: int) -> list[PastJob]:
        """Return accounting's records of every job since a moment.

        One question, whatever their number.
        """
        wanted: set[Any] = set(jobs)
        path = f"jobs?start_time=uts{since_ms // 1000}"
        return [job for job in parse_history(self._get(path, "slurmdb")) if job.job_id in wanted]

    def history(self, from_ms: int, to_ms: int) -> list[PastJob]:
        """Return accounting's records of every job in a span."""
        path = f"jobs?start_time=uts{from_ms // 1000}&end_time=uts{to_ms // 1000}"
        return parse_history(self._get(path, "slurmdb"))

    def _get(self, what: str, part: str = "slurm") -> bytes:
        if not self._version:
            self._version = self._find_newest_version()
        return self._fetch(f"/{part}/v{self._version}/{what}")

    def _find_newest_version(self) -> str:
        for version in VERSIONS:
            try:
                self._fetch(f"/slurm/v{version}/ping")
            except Unavailable as error:
                if error.code == "no_such_path":
                    continue
                raise
            return version
        raise Unavailable(f"slurmrestd at {self._url} speaks none of {', '.join(VERSIONS)}.")

    def _fetch(self, path: str) -> bytes:
        fetcher = self._get_fetcher()
        try:
            return run_on(self._loop, fetcher.fetch(parse_address(self._url + path)))
        except Unavailable as error:
            code = find_slurm_code(str(error), error.code)
            raise Unavailable(f"slurmrestd {path}: {error}", code=code) from None

    def _get_fetcher(self) -> Fetcher:
        token = self._token.current(time.time_ns() // 1_000_000)
        if self._fetcher is None or token != self._sent:
            if self._fetcher is not None:
                self._fetcher.close()
            headers = {"X-SLURM-USER-NAME": self._user, "X-SLURM-USER-TOKEN": token}
            self._fetcher, self._sent = Fetcher(self._rules, headers), token
        return self._fetcher

    def close(self) -> None:
        """Close the connection."""
        if not self._loop.is_closed() and not self._loop.is_running():
            if self._fetcher is not None:
                self._fetcher.close()
            run_on(self._loop, asyncio.sleep(0))
            self._loop.close()
