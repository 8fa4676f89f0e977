"""Credentials that a program makes, as kubeconfigs of clouds name one (``exec``)."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from marey.model.errors import InvalidInput, MareyError, Unavailable, shown
from marey.model.times import parse_time

PROGRAM_S = 30.0
OUTPUT_LIMIT = 1 << 20
# Asked anew this long before its end; one without an end is asked for this often.
EARLY_MS = 60_000
UNDATED_MS = 10 * 60_000


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    expiration_timestamp: str | None = None


class _Credential(msgspec.Struct):
    status: _Status | None = None


@dataclass(slots=True)
class _Kept:
    token: str = ""
    until_ms: int = 0


@dataclass(frozen=True, slots=True)
class ExecCredentials:
    """A program that prints an ``ExecCredential``; its token is kept until shortly before its end.

    It runs without a shell, only when a kubeconfig that the site named says so.
    """

    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    api_version: str = "client.authentication.k8s.io/v1"
    _kept: _Kept = field(default_factory=_Kept, compare=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    def read_token(self) -> str:
        """Return a token that is valid now; raises ``Unavailable`` where the program fails."""
        with self._lock:
            now_ms = time.time_ns() // 1_000_000
            if not self._kept.token or now_ms >= self._kept.until_ms:
                status = self._run()
                self._kept.token = status.token
                self._kept.until_ms = _find_end_ms(status, now_ms)
            return self._kept.token

    def _run(self) -> _Status:
        info = {"apiVersion": self.api_version, "kind": "ExecCredential",
                "spec": {"interactive": False}}  # fmt: skip
        given = {"KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        try:
            done = subprocess.run(
                [self.command, *self.arguments],
                capture_output=True,
                timeout=PROGRAM_S,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environment, **given},
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self._make_error(str(error)) from None
        if done.returncode:
            raise self._make_error(done.stderr.decode("utf-8", "replace").strip()[-200:])
        try:
            found = msgspec.json.decode(done.stdout[:OUTPUT_LIMIT], type=_Credential).status
        except msgspec.MsgspecError as error:
            raise self._make_error(f"it printed no ExecCredential: {error}") from None
        if found is None or not found.token:
            raise self._make_error("its answer holds no token (client certificates are not read)")
        return found

    def _make_error(self, why: str) -> MareyError:
        return Unavailable(
            f"The program '{shown(self.command)}' of the kubeconfig gave no token: {shown(why)}",
            code="unauthorized",
        )


def _find_end_ms(status: _Status, now_ms: int) -> int:
    if not status.expiration_timestamp:
        return now_ms + UNDATED_MS
    try:
        return int(parse_time(status.expiration_timestamp)) - EARLY_MS
    except InvalidInput:
        return now_ms + UNDATED_MS


def read_exec_credentials(entry: Any, folder: Path) -> ExecCredentials:
    """Return the program that a kubeconfig's user names; a relative path is one of its folder."""
    if not isinstance(entry, dict) or not isinstance(entry.get("command"), str):
        raise InvalidInput("The kubeconfig's exec names no command.")
    command = entry["command"]
    if "/" in command and not command.startswith("/"):
        command = str(folder / command)
    listed = entry.get("env")
    pairs: Sequence[Any] = listed if isinstance(listed, list) else ()
    environment = {
        str(pair["name"]): str(pair.get("value", ""))
        for pair in pairs
        if isinstance(pair, dict) and pair.get("name")
    }
    arguments = entry.get("args")
    return ExecCredentials(
        command,
        tuple(str(word) for word in arguments) if isinstance(arguments, list) else (),
        environment,
        str(entry.get("apiVersion") or "client.authentication.k8s.io/v1"),
    )
