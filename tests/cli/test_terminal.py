"""Names come from anybody: a terminal shows them and never obeys them, whatever the command."""

from __future__ import annotations

import io
import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from marey.app.audit.audit_documents import AuditKind
from marey.app.audit.audit_log import AuditEvent, AuditLog, get_audit_folder
from marey.cli import main
from marey.cli.output import Output, clean_text
from marey.store.embedded.embedded_store import open_store
from tests.app.small_cluster import START_MS, TICK_MS, inventory, samples

CLI = Path(__file__).resolve().parents[2] / "src" / "marey" / "cli"
# Sets the title, clears the screen, hides what follows, turns the writing round.
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b8m\u202eevil\r"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
COMMANDS = [
    ["workloads"],
    ["workload", "1"],
    ["events"],
    ["diagnose", "1"],
    ["findings"],
    ["queue", "list"],
    ["progress", "1"],
    ["audit"],
    ["audit", "--csv"],
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which every name would do something to a terminal."""
    path = tmp_path_factory.mktemp("terminal") / "evil.duckdb"
    told = inventory()
    workloads = tuple(
        replace(one, name=EVIL, user=EVIL, project=EVIL, attributes={EVIL: EVIL})
        for one in told.workloads
    )
    events = tuple(replace(event, text=EVIL, workload="1") for event in told.events)
    with open_store(path) as store:
        store.apply(replace(told, workloads=workloads, events=events))
        batches = [samples(START_MS + tick * TICK_MS) for tick in range(40)]
        store.append(batches)
    log = AuditLog(get_audit_folder(path))
    log.record(AuditEvent(AuditKind.CHANGE, EVIL, object=EVIL), time.time_ns() // 1_000_000)
    log.close()
    return path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_what_a_terminal_obeys(
    store: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    forms = ([], ["--json"]) if "--csv" not in command else ([],)
    for form in forms:
        assert main([*command, "--store", str(store), *form]) == 0
        shown = capsys.readouterr()
        assert shown.out
        assert not OBEYED.search(shown.out + shown.err)
    if forms[-1]:
        assert json.loads(shown.out)


def test_errors_are_cleaned_too(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", EVIL, "--store", str(store)]) != 0
    assert main(["trace", "report", f"/nowhere/{EVIL}"]) != 0
    assert not OBEYED.search(capsys.readouterr().err)


def test_json_says_the_same_with_and_without_a_terminal() -> None:
    stream = io.StringIO()
    Output(json=True, stdout=stream).answer({"name": EVIL}, "")
    assert not OBEYED.search(stream.getvalue())
    assert json.loads(stream.getvalue()) == {"name": EVIL}
    assert clean_text("täglich ✓ 日本\tx\n") == "täglich ✓ 日本\tx\n"


def test_nothing_is_printed_past_the_sanitiser() -> None:
    unclean = re.compile(r"\bprint\((?!clean_text)|(?:stdout|stderr)\.write\((?!clean_)")
    found = {
        f"{path.relative_to(CLI)}: {line.strip()}"
        for path in CLI.rglob("*.py")
        for line in path.read_text().splitlines()
        if unclean.search(line)
    }
    assert found == {
        '__init__.py: print(f"marey {args.command}: interrupted", file=sys.stderr)',
    }
