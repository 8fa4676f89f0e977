"""Slurm's own shares: a recorded ``sshare``, nested accounts, and slurmrestd's document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marey.model.errors import Unavailable
from marey.sources.slurm.commands import CommandLine
from marey.sources.slurm.shares import parse_shares, parse_shares_document
from marey.sources.slurm.slurm_source import SlurmRules, SlurmSource
from tests.sources.slurm.tools import asked, recorded_tools, tool

NOW_MS = 1_794_771_700_000
# Two faculties; one splits its part again, and has a user of its own beside the groups.
NESTED = """\
root||
 root|root|1
 arts||40
  music||10
   music|ann|1
  film||30
   film|bob|1
   film|cat|1
 science||60
  science|dean|10
  physics||20
   physics|eva|parent
  maths||parent
   maths|fay|1
   algebra||30
    algebra|gus|1
"""


def test_shares_count_among_siblings_level_by_level() -> None:
    shares = parse_shares(NESTED)
    whole = 40 + 60
    # root's own user has one of 101 shares, and is no project.
    assert sum(shares.values()) == pytest.approx(100 / 101)
    relative = {name: part * 101 / whole for name, part in shares.items()}
    assert relative["music"] == pytest.approx(0.4 * 10 / 40)
    assert relative["film"] == pytest.approx(0.4 * 30 / 40)
    assert relative["science"] == pytest.approx(0.6 * 10 / 60)
    assert relative["physics"] == pytest.approx(0.6 * 20 / 60)
    # maths stands as its parent: what is below it competes with physics.
    assert relative["algebra"] == pytest.approx(0.6 * 30 / 60)
    assert "root" not in shares


def test_the_recorded_tree_is_read_from_the_tool_and_reaches_the_observation(
    data_dir: Path, tmp_path: Path
) -> None:
    recorded_tools(tmp_path, data_dir)
    # The recording is in columns; the tool is asked for fields with a bar between them.
    listed = (data_dir / "slurm/22.05/sshare.txt").read_text().splitlines()[2:]
    rows = ["|".join((row[:20].rstrip(), row[20:31].strip(), row[31:42].strip())) for row in listed]
    (tmp_path / "rows").write_text("\n".join(rows))
    tool(tmp_path, "sshare", f'cat "{tmp_path}/rows"')
    (seen,) = SlurmSource("s", CommandLine(str(tmp_path)), SlurmRules("c")).poll(NOW_MS)
    assert seen.shares is not None
    assert sorted(seen.shares) == ["climate", "nlp", "vision"]
    assert seen.shares["nlp"] == pytest.approx(50 / 101)
    call = "sshare --all --parsable2 --noheader --format=Account,User,RawShares"
    assert call in asked(tmp_path)


def test_a_site_without_accounting_says_why_there_are_no_shares(
    data_dir: Path, tmp_path: Path
) -> None:
    recorded_tools(tmp_path, data_dir)
    tool(tmp_path, "sshare", 'echo "sshare: error: accounting is off" >&2; exit 1')
    source = SlurmSource("s", CommandLine(str(tmp_path)), SlurmRules("c"))
    (seen,) = source.poll(NOW_MS)
    assert seen.shares is None
    assert "accounting is off" in source.details()["not_told"]["shares"]


def test_slurmrestd_tells_the_same() -> None:
    def row(name: str, parent: str, kind: str, number: int) -> dict[str, object]:
        shares = {"set": True, "infinite": False, "number": number}
        return {"name": name, "parent": parent, "type": [kind], "shares": shares, "partition": ""}

    document = {
        "shares": {
            "shares": [
                row("root", "", "ASSOCIATION", 1),
                row("nlp", "root", "ASSOCIATION", 30),
                row("alice", "nlp", "USER", 0x7FFFFFFF),
                row("vision", "root", "ASSOCIATION", 10),
                row("bob", "vision", "USER", 1),
            ],
            "total_shares": 5,
        },
        "errors": [],
    }
    assert parse_shares_document(json.dumps(document).encode()) == {"nlp": 0.75, "vision": 0.25}
    with pytest.raises(Unavailable, match="shares cannot be read"):
        parse_shares_document(b'{"shares": 7}')


@pytest.mark.parametrize("text", ["", "|||", "a|b|c|d\n" * 3, "x||9\n      deep||1\n", "\x00"])
def test_any_text_gives_an_answer(text: str) -> None:
    assert all(part > 0 for part in parse_shares(text).values())
