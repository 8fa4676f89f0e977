"""The web app: answers have the types generated from OpenAPI, lines end before column 121."""

from __future__ import annotations

import re
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "web" / "src"
_INNER = r"(?:[^<>]|<[^<>]*>)*"
_ASKED = re.compile(rf"\b(?:getJson|postJson|putJson|patchJson)<({_INNER})>\(")
_DEFINED = re.compile(
    r"^(?:export )?(?:type|interface) (\w+)\b([^;{]*(?:\{[^}]*\})?)", re.MULTILINE
)
_GENERATED = re.compile(r"Document<|operations\[|components\[")
_IMPORTED = re.compile(r"import (?:type )?\{([^}]*)\} from \"@/([^\"]+)\"")


def find_definition(name: str, file: Path, text: str) -> str:
    """Return what a type is defined as, in the file itself or where it is imported from."""
    own = [body for found, body in _DEFINED.findall(text) if found == name]
    if own:
        return str(own[0])
    for names, module in _IMPORTED.findall(text):
        if name in re.findall(r"\w+", names):
            for ending in (".ts", ".tsx"):
                path = SOURCES / f"{module}{ending}"
                if path.exists():
                    return find_definition(name, path, path.read_text("utf-8"))
    return ""


def test_every_answer_that_is_asked_for_has_a_generated_type() -> None:
    asked, by_hand = 0, []
    for file in sorted(SOURCES.rglob("*.ts*")):
        text = file.read_text("utf-8")
        for kind in _ASKED.findall(text):
            asked += 1
            name = re.sub(r"\[.*\]$", "", kind)
            # T stands for what the caller names; a document may stand where the type is used.
            if name == "T" or _GENERATED.search(kind):
                continue
            if not _GENERATED.search(find_definition(name, file, text)):
                by_hand.append(f"{file.relative_to(SOURCES)}: {kind}")
    assert asked > 80
    assert by_hand == []


def test_no_line_is_longer_than_120_columns() -> None:
    files = [f for f in sorted(SOURCES.rglob("*")) if f.suffix in {".ts", ".tsx", ".css"}]
    assert len(files) > 300
    long = [
        f"{file.relative_to(SOURCES)}:{number}"
        for file in files
        if file.name != "schema.ts"
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if len(line) > 120
    ]
    assert long == []
