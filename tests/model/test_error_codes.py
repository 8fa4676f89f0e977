"""Errors carry a code: the text is for people, the code for programs."""

from __future__ import annotations

import re
import socket
import ssl
from pathlib import Path

import pytest

import marey
from marey.model import errors
from marey.model.system.failure_codes import get_failure_code, get_status_code

SOURCES = Path(marey.__file__).parent
# A test of a message's words: `"…" in str(error)` and its kin.
BY_TEXT = re.compile(r"""["'}] (?:not )?in (?:str\((?:error|exc|e)\)|error\b|\w+\.error\b)""")


def test_every_error_of_the_family_has_its_own_stable_code() -> None:
    family = [errors.MareyError, *errors.MareyError.__subclasses__()]
    codes = {kind.__name__: kind.code for kind in family if kind.__module__ == errors.__name__}
    assert codes == {
        "MareyError": "bad_request",
        "InvalidInput": "invalid_input",
        "NotFound": "not_found",
        "Conflict": "conflict",
        "TooLarge": "too_large",
        "Unavailable": "unavailable",
        "NotSignedIn": "unauthorized",
        "NotPermitted": "not_permitted",
        "StoreError": "store_error",
    }


def test_one_error_may_say_more_exactly_which_it_is() -> None:
    error = errors.Unavailable("no answer", code="timeout", subject="slurm")
    assert (str(error), error.code, error.subject) == ("no answer", "timeout", "slurm")
    assert errors.Unavailable("no answer").code == "unavailable"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionRefusedError(111, "Connect call failed"), "connection_refused"),
        (OSError("Multiple exceptions: [Errno 111] a, [Errno 101] b"), "connection_refused"),
        (socket.gaierror(-2, "Name or service not known"), "unknown_host"),
        (TimeoutError(), "timeout"),
        (ssl.SSLCertVerificationError("self-signed"), "untrusted_certificate"),
        (OSError(101, "Network is unreachable"), "unreachable"),
    ],
)
def test_a_failed_connection_has_the_code_of_its_cause(error: OSError, code: str) -> None:
    assert get_failure_code(error) == code


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, "unauthorized"),
        (403, "forbidden"),
        (404, "no_such_path"),
        (418, "unavailable"),
        (503, "server_failed"),
    ],
)
def test_a_refused_request_has_the_code_of_its_status(status: int, code: str) -> None:
    assert get_status_code(status) == code


def test_nothing_decides_by_the_words_of_an_error() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{number}"
        for path in sorted(SOURCES.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if BY_TEXT.search(line)
    ]
    assert not found
