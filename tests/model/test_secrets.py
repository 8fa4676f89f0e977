"""Secrets come from the environment or a file, through one reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from marey.model.errors import InvalidInput, Unavailable
from marey.model.system.secrets import NO_SECRET, Secret


def test_a_secret_is_read_anew_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    secret = Secret(file=str(file))
    assert secret.read() == "first"
    file.write_text("second\n")
    assert secret.find() == "second"


def test_the_environment_comes_before_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", " from here ")
    assert Secret("A_TOKEN", "/nowhere").read() == "from here"


def test_no_secret_is_found_where_none_is_given() -> None:
    assert NO_SECRET.find() == ""
    assert not NO_SECRET.given


@pytest.mark.parametrize("content", [None, "", "  \n", b"\xff\xfe\xfa"])
def test_a_missing_empty_or_unreadable_file_is_named_with_a_code(
    tmp_path: Path, content: str | bytes | None
) -> None:
    file = tmp_path / "token"
    if isinstance(content, str):
        file.write_text(content)
    elif content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"store\.token_file '") as caught:
        Secret(file=str(file), file_key="store.token_file").read()
    assert caught.value.code == "secret_missing"


def test_the_caller_says_which_error_a_missing_secret_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A_TOKEN", raising=False)
    with pytest.raises(Unavailable, match="A_TOKEN is empty"):
        Secret("A_TOKEN").read(Unavailable)
