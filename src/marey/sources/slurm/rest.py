"""slurmrestd: the same documents over HTTP, with a JSON web token."""

from __future__ import annotations

import asyncio

from marey.model.errors import InvalidInput, Unavailable
from marey.model.inventory import Partition
from marey.sources.fetching import Fetcher, FetchRules, parse_address
from marey.sources.slurm.documents import Job, Node, parse_document
from marey.sources.slurm.nodes import partition_of

# Newest first; 0.0.38 came with 22.05, 0.0.43 with 25.05, 0.0.44 with 25.11.
VERSIONS = ("0.0.44", "0.0.43", "0.0.42", "0.0.41", "0.0.40", "0.0.39", "0.0.38")
BODY_LIMIT = 1 << 30


class Rest:
    """Asks slurmrestd; which version of its interface is found by asking."""

    def __init__(self, url: str, user: str, token: str, timeout_s: float = 30.0) -> None:
        if not token or not all(33 <= ord(c) < 127 for c in token + user):
            raise InvalidInput("The Slurm token is empty or holds what a header may not.")
        parse_address(url)
        self._url = url.rstrip("/")
        self._loop = asyncio.new_event_loop()
        self._fetcher = Fetcher(
            FetchRules(timeout_s, at_once=1, kept=1, limit=BODY_LIMIT),
            {"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": token},
        )
        self._version = ""

    def nodes(self) -> list[Node]:
        """Every node."""
        return parse_document(self._get("nodes"), "nodes").nodes or []

    def jobs(self) -> list[Job]:
        """Every job that the controller still remembers."""
        return parse_document(self._get("jobs"), "jobs").jobs or []

    def partitions(self) -> list[Partition]:
        """Every partition that this user may see."""
        found = parse_document(self._get("partitions"), "partitions").partitions or []
        return [partition_of(partition) for partition in found]

    def _get(self, what: str) -> bytes:
        if not self._version:
            self._version = self._newest()
        return self._fetch(f"/slurm/v{self._version}/{what}")

    def _newest(self) -> str:
        for version in VERSIONS:
            try:
                self._fetch(f"/slurm/v{version}/ping")
            except Unavailable as error:
                if "status 404" in str(error):
                    continue
                raise
            return version
        raise Unavailable(f"slurmrestd at {self._url} speaks none of {', '.join(VERSIONS)}.")

    def _fetch(self, path: str) -> bytes:
        address = parse_address(self._url + path)
        try:
            return self._loop.run_until_complete(self._fetcher.fetch(address))
        except Unavailable as error:
            raise Unavailable(f"slurmrestd {path}: {error}") from None

    def close(self) -> None:
        """Let go of the connection."""
        if not self._loop.is_closed() and not self._loop.is_running():
            self._fetcher.close()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()
