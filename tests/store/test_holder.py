"""Who holds a store, as told by the file beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from marey.model.errors import Conflict
from marey.store.holder import (
    StoreHolder,
    find_holder,
    get_address_path,
    remove_address,
    write_address,
)


def test_a_living_server_is_found_until_it_takes_its_address_away(tmp_path: Path) -> None:
    store = tmp_path / "s.marey"
    assert find_holder(store) is None
    write_address(store, "http://127.0.0.1:8000")
    assert get_address_path(store).name == "s.marey.server"
    assert find_holder(store) == StoreHolder("http://127.0.0.1:8000", os.getpid())
    assert get_address_path(store).stat().st_mode & 0o077 == 0
    remove_address(store)
    assert find_holder(store) is None
    remove_address(store)


def test_the_address_of_a_dead_process_is_stale(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    document = {"url": "http://127.0.0.1:1", "pid": dead.pid}
    get_address_path(tmp_path / "s").write_text(json.dumps(document))
    assert find_holder(tmp_path / "s") is None


def test_another_process_s_address_is_not_removed(tmp_path: Path) -> None:
    get_address_path(tmp_path / "s").write_text('{"url": "http://127.0.0.1:1", "pid": 1}')
    remove_address(tmp_path / "s")
    assert find_holder(tmp_path / "s") == StoreHolder("http://127.0.0.1:1", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "{}",
        '{"url": 5, "pid": 1}',
        '{"url": "http://x", "pid": "1"}',
        '{"url": "http://x", "pid": true}',
        '{"url": "http://x", "pid": -1}',
        '{"url": "http://x", "pid": 1e400}',
        '{"url": "http://x", "pid": 99999999999999999999999}',
        '{"url": "file:///etc/passwd", "pid": 1}',
        '{"url": "http://[", "pid": 1}',
        "[" * 4000,
        '{"url": "http://x", "pid": 1}' + " " * 100_000,
        "\xff\xfe",
    ],
)
def test_nonsense_is_no_holder(tmp_path: Path, text: str) -> None:
    get_address_path(tmp_path / "s").write_text(text, encoding="latin-1")
    assert find_holder(tmp_path / "s") is None


def test_a_process_of_somebody_else_with_a_dead_servers_number_is_not_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_address(tmp_path / "s", "http://127.0.0.1:1")
    assert find_holder(tmp_path / "s") is not None
    real = os.stat

    def show_others(path: Any, **more: Any) -> Any:
        if str(path).startswith("/proc/"):
            return SimpleNamespace(st_uid=54321)
        return real(path, **more)

    monkeypatch.setattr(os, "stat", show_others)
    assert find_holder(tmp_path / "s") is None


def test_an_address_that_others_may_have_written_is_not_believed(tmp_path: Path) -> None:
    store = tmp_path / "s"
    write_address(store, "http://127.0.0.1:1")
    path = get_address_path(store)
    path.chmod(0o666)
    with pytest.raises(Conflict, match="is not believed"):
        find_holder(store)
    path.chmod(0o600)
    assert find_holder(store) is not None


def test_a_link_is_not_followed_to_an_address(tmp_path: Path) -> None:
    write_address(tmp_path / "other", "http://127.0.0.1:1")
    get_address_path(tmp_path / "s").symlink_to(get_address_path(tmp_path / "other"))
    assert find_holder(tmp_path / "s") is None


def test_a_file_of_another_user_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "s"
    write_address(store, "http://127.0.0.1:1")
    seen = os.fstat

    def belong_to_another(descriptor: int) -> os.stat_result:
        fields = list(seen(descriptor))
        fields[4] = 12345
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", belong_to_another)
    with pytest.raises(Conflict, match="user 12345"):
        find_holder(store)
