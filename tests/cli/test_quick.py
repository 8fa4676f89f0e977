"""Help and mistakes are answered without loading the server, the database or the compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

from marey.cli import COMMANDS, build_parser, parse_words
from marey.cli.training.trace import ANSWERS

HEAVY = ("fastapi", "uvicorn", "duckdb", "numba", "pyarrow", "scipy")


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom marey.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stderr.strip() == "[]"
    assert result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_commands_help_shows_it_at_work(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        build_parser([command]).parse_args([command, "--help"])
    assert f"  marey {command}" in capsys.readouterr().out.partition("examples:")[2]


@pytest.mark.parametrize("question", ANSWERS)
def test_every_question_to_a_trace_shows_itself_at_work(
    question: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        build_parser(["trace"]).parse_args(["trace", question, "--help"])
    assert f"  marey trace {question} " in capsys.readouterr().out.partition("examples:")[2]


def test_the_list_of_commands_has_one_line_each() -> None:
    lines = build_parser([]).format_help().splitlines()
    for name, (_, summary) in COMMANDS.items():
        assert any(line.split(maxsplit=1) == [name, summary] for line in lines), name


def test_changes_may_stand_after_options(capsys: pytest.CaptureFixture[str]) -> None:
    args = parse_words(["what-if", "traces/", "link=x2", "--plain-step-ms", "4", "bucket=1MB"])
    assert args.changes == ["link=x2", "bucket=1MB"]
    for wrong in (["what-if", "traces/", "--json", "--magic"], ["replay", "one/", "two/"]):
        with pytest.raises(SystemExit):
            parse_words(wrong)
        assert f"unrecognized arguments: {wrong[-1]}" in capsys.readouterr().err
