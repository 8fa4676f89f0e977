"""The document of a diagnosis keeps to its schema; the reports made of it are safe and whole."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest

from bench.diagnosis import simulate
from marey.app.diagnosis.diagnosis_document import document
from marey.diagnose.diagnosis import diagnose
from marey.diagnose.matrix import Context, GpuFacts, WorkloadFacts, WorkloadMatrix, build_matrix
from marey.diagnose.report import (
    Pictures,
    markdown_escape,
    report_html,
    report_markdown,
)
from marey.model.faults import FaultKind
from marey.model.samples import SampleBatch
from marey.model.system.page_code import Drawing

SCHEMA = json.loads(
    (Path(__file__).parents[3] / "docs" / "diagnosis.schema.json").read_text(encoding="utf-8")
)
EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>'


def checked(matrix: WorkloadMatrix) -> dict[str, Any]:
    # As the API does: a number of numpy's is none to it.
    made = msgspec.json.decode(msgspec.json.encode(document(matrix, diagnose(matrix))))
    jsonschema.Draft202012Validator(SCHEMA).validate(made)
    return made


def small(values: np.ndarray) -> WorkloadMatrix:
    count, moments = values.shape
    gpus = [GpuFacts(f"h:{i}", "h", i) for i in range(count)]
    batch = SampleBatch(
        np.tile(np.arange(moments, dtype=np.int64) * 15_000 + 10**12, count),
        np.repeat(np.arange(count, dtype=np.int32), moments),
        [gpu.gpu for gpu in gpus],
        {"util": values.ravel().astype(np.float32)},
    )
    return build_matrix(Context(WorkloadFacts("w", state="running"), gpus), [batch])


@pytest.fixture(scope="module")
def biased() -> WorkloadMatrix:
    return simulate(73, FaultKind.BIASED_LOAD, 32).matrix


def test_the_schema_itself_is_sound() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_whole_diagnosis_keeps_to_the_schema(biased: WorkloadMatrix) -> None:
    made = checked(biased)
    assert made["findings"][0]["kind"] == "biased_load"
    listed = [gpu for cluster in made["clusters"] for gpu in cluster["gpus"]]
    assert sorted(listed) == sorted(made["workload"]["gpus"])


@pytest.mark.parametrize("kind", [FaultKind.XID, FaultKind.NODE_FAILURE, FaultKind.SLOW_NODE])
def test_faults_of_the_machine_keep_to_the_schema(kind: FaultKind) -> None:
    made = checked(simulate(76, kind, 16).matrix)
    assert made["findings"][0]["kind"] == kind.value


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((2, 0)),
        np.full((1, 1), 50.0),
        np.full((1, 40), 50.0),
        np.full((4, 40), np.nan),
        np.where(np.arange(160).reshape(4, 40) % 3 == 0, np.nan, 60.0),
    ],
    ids=["no sample", "one sample", "one GPU", "only gaps", "gaps"],
)
def test_difficult_input_keeps_to_the_schema_too(values: np.ndarray) -> None:
    made = checked(small(values))
    assert made["verdict"]
    assert "<html" in report_html(made)
    assert report_markdown(made).startswith("# ")


class Tags(HTMLParser):
    """Collects every tag and attribute, and the text of every script."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        # The parser gives a script's text as it stands.
        if self.cdata_elem == "script":
            self.scripts[-1] += data


CODE = Drawing('draw("</script>", "<!--");', ".u-over { position: absolute }")


def hostile_pictures() -> Pictures:
    gpu = {"gpu": EVIL, "host": EVIL, "index": 0, "cluster": 0, "difference": 0.1, "median": 5.0}
    clusters = {
        "label": EVIL, "unit": "%", "criterion": EVIL, "limits": [0, 100], "approximate": False,
        "clusters": [{"id": 0, "gpus": [EVIL], "why": EVIL}], "gpus": [gpu], "tree": None,
    }  # fmt: skip
    return Pictures(clusters)


@pytest.mark.parametrize("drawing", [CODE, None], ids=["drawn", "web app not built"])
def test_a_report_escapes_names_and_needs_nothing_from_outside(
    biased: WorkloadMatrix, drawing: Drawing | None
) -> None:
    hostile = replace(biased, facts=replace(biased.facts, name=EVIL, user=EVIL))
    page = report_html(checked(hostile), hostile_pictures(), drawing=drawing)
    seen = Tags()
    seen.feed(page)
    assert not set(seen.tags) & {"img", "link", "iframe", "object"}
    assert seen.tags.count("script") == (2 if drawing else 0)
    assert not {name for name in seen.attributes if name.startswith("on")}
    assert not seen.attributes & {"src", "href", "xlink:href", "action", "srcset"}
    assert not re.search(r"https?://|url\(|@import", page)
    assert "The first GPU of every node carries more load" in page
    if drawing is None:
        assert "was not built" in page
        assert "<noscript>" not in page, "tables stand in the open"
        return
    data, code = seen.scripts
    assert json.loads(data)["diagnosis"]["workload"]["name"] == EVIL
    assert not set(data) & set("<>&")
    # The policy lets exactly this code run: nothing that came with the data could.
    digest = b64encode(sha256(code.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "<noscript><table>" in page


def test_markdown_shows_hostile_text_as_text(biased: WorkloadMatrix) -> None:
    hostile = replace(biased, facts=replace(biased.facts, name=f"# {EVIL}\n\n[a](b) | c"))
    text = report_markdown(checked(hostile))
    assert "<script>" not in text.replace("\\<", "")
    assert text.splitlines()[0].endswith("\\[a\\]\\(b\\) \\| c")
    assert markdown_escape("a|b\n`c`") == "a\\|b \\`c\\`"
