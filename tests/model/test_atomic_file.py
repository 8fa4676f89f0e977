"""A file is whole or as it was before."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from marey.model.system.atomic_file import move_file, replace_file, write_file
from marey.model.system.private_files import make_private_folder


def test_the_new_file_takes_the_old_ones_place(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_an_error_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")

    def write_half() -> None:
        with replace_file(path) as file:
            file.write(b"ne")
            raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        write_half()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_bytes_and_name_are_flushed_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (steps.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (steps.append("replace"), replace(a, b))[1])
    write_file(tmp_path / "state", b"new")
    assert steps == ["fsync", "replace", "fsync"]


def test_the_mode_keeps_others_out(tmp_path: Path) -> None:
    write_file(tmp_path / "address", b"x", draft=tmp_path / ".draft", mode=0o600)
    assert (tmp_path / "address").stat().st_mode & 0o777 == 0o600


def test_a_file_is_moved_as_one_step(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    move_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"x"


def test_a_file_is_its_owner_s_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_file(tmp_path / "a", b"1")
        make_private_folder(tmp_path / "b")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o700


def test_a_draft_that_somebody_laid_out_leads_to_no_other_file(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    (tmp_path / "state.new").symlink_to(other)
    write_file(tmp_path / "state", b"new")
    assert other.read_bytes() == b"precious"
    assert (tmp_path / "state").read_bytes() == b"new"
    assert not (tmp_path / "state").is_symlink()
