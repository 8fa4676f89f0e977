"""The owner's key is read from the owner's own file alone."""

from __future__ import annotations

from pathlib import Path

from marey.app.access.owner_key import find_owner_key, get_key_path, write_owner_key


def test_the_key_is_found_beside_the_store(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    assert find_owner_key(store) == ""
    key = write_owner_key(store)
    assert get_key_path(store).stat().st_mode & 0o777 == 0o600
    assert find_owner_key(store) == key
    get_key_path(store).chmod(0o644)
    assert find_owner_key(store) == ""


def test_beside_somebody_elses_store_no_other_secret_is_taken_for_it(tmp_path: Path) -> None:
    """Whatever is found is sent to the server that the store's owner names."""
    secret = tmp_path / "secret"
    secret.write_text("mine")
    secret.chmod(0o600)
    store = tmp_path / "s.duckdb"
    get_key_path(store).symlink_to(secret)
    assert find_owner_key(store) == ""
    get_key_path(store).unlink()
    get_key_path(store).hardlink_to(secret)
    assert find_owner_key(store) == ""
