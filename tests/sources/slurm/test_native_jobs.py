"""Jobs read natively are the jobs that msgspec reads, whatever stands in the document."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.model.errors import Unavailable
from marey.sources.slurm import slurm_json
from marey.sources.slurm.slurm_json import (
    Job,
    SlurmDocument,
    parse_document,
    read_jobs_in_native,
    read_jobs_in_python,
)

REFUSED = "refused"


def told(read: Any, body: bytes) -> str | None:
    """The document with the type of each value, or that it is refused; None where left alone."""
    try:
        found = read(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return REFUSED
    return None if found is None else repr(found)


def assert_agree(body: bytes) -> bool:
    """Both read the same where the native reader reads at all; whether it does."""
    mine = told(read_jobs_in_native, body)
    assert mine is None or mine == told(read_jobs_in_python, body)
    return mine is not None


def assert_read(body: bytes) -> SlurmDocument:
    """Both read the same, and the native reader leaves nothing to the other."""
    assert assert_agree(body), body[:200]
    found = read_jobs_in_native(body)
    assert found is not None
    return found


def recorded(folder: Path) -> list[Path]:
    """Every recorded answer that lists jobs of the controller."""
    names = ["22.05/squeue.json", "22.05/rest_v0038_jobs.json"]
    rest = sorted(path for path in (folder / "rest").rglob("slurm-job*.json"))
    return [*(folder / name for name in names), *rest]


def test_the_native_reader_is_built() -> None:
    assert read_jobs_in_native(b'{"jobs": []}') is not None


def test_every_recorded_document_is_read_natively_and_alike(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = recorded(data_dir / "slurm")
    natively = [_answer(path.read_bytes()) for path in files if assert_read(path.read_bytes())]
    monkeypatch.setattr(slurm_json, "read_jobs_in_native", lambda body: None)
    assert natively == [_answer(path.read_bytes()) for path in files]
    assert len(files) > 50


def _answer(body: bytes) -> str:
    try:
        return repr(parse_document(body, "jobs"))
    except Unavailable as error:
        return str(error)


def test_a_recorded_document_with_a_mistake_anywhere_is_read_alike(data_dir: Path) -> None:
    whole = (data_dir / "slurm/rest/25.05/0.0.43/slurm-job-pending.json").read_bytes()
    chance = random.Random(5)
    for _ in range(1500):
        assert_agree(_broken(whole, chance))


def _broken(body: bytes, chance: random.Random) -> bytes:
    """One small change: a byte of another kind, a piece gone, a piece twice, or an early end."""
    at, length = chance.randrange(len(body)), chance.randrange(1, 40)
    odd = chance.choice(
        [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b"\xff", b"\0"]
    )
    return chance.choice(
        [
            body[:at] + odd + body[at + 1 :],
            body[:at] + odd + body[at:],
            body[:at] + body[at + length :],
            body[: at + length] + body[at:],
            body[:at],
        ]
    )


# What one field may hold, long and short, plain and hostile; and what it may not.
GOOD = [
    *(b"0", b"-0", b"7", b"-12", b"4294967294", b"9223372036854775808", b"1.5", b"1e3", b"1E+2"),
    *(b"true", b"false", b"null", b" 1", b"1 \n", b"\t2", b"[]", b"{}", b'["RUNNING"]'),
    *(b'""', b'"a"', b'"a name of more than sixteen letters"', b'"\xc3\xa9"', b'"\\n"', b'"\x7f"'),
    *(b'"\\u00e9"', b'"\\ud83d\\ude00"', b'"\\""', b'"}, {"', b'"sixteen letters!\\""'),
    *(b"[[[[1]]]]", b'[{"name": "n1", "cores": [{"index": 0}]}]', b'{"number": 1, "number": 2}'),
    b'{"set": true, "infinite": false, "number": 7}',
    b'{"set": true, "infinite": false, "number": 8}',
    b'{"set":false,"infinite":true,"number":0}',
]
BAD = [
    *(b"1e999", b"01", b"1.", b".5", b"-", b"+1", b"1e", b"NaN", b"Infinity", b"0x1", b"1" * 40),
    *(
        b"tru",
        b"nulls",
        b"TRUE",
        b"",
        b'"\xff"',
        b'"\\ud800"',
        b'"\\udc00"',
        b'"\\ud83d\\u0041"',
        b'"\\ud83d\\n"',
        b'"\\q"',
        b'"\\u12"',
    ),
    *(b'"\x01"', b'"', b'"\\', b'"\\"', b"[1,]", b'{"a":1,}', b"[1 2]", b'{"a" 1}', b"{1:2}"),
    *(b"[", b"]", b"{", b"}", b'{"set": 1}', b"[" * 80 + b"]" * 80),
]
TOKENS = GOOD * 8 + BAD
NAMES = [
    *("job_id", "name", "job_state", "priority", "nodes", "comment", "gres_detail", "time_limit"),
    *("unused", "a_key_of_more_than_sixteen_letters", "job_idd", "nam", "", "é", "jobs", "errors"),
]
# An escape in a key may spell another key; the native reader leaves it alone.
ESCAPED = ["\\u006ename", 'a\\"b']
FIELDS = st.tuples(st.sampled_from(NAMES * 4 + ESCAPED), st.sampled_from(TOKENS))
GAPS = st.sampled_from([b"", b"", b" ", b"\n  ", b"\r\t"])


@st.composite
def jobs(draw: st.DrawFn) -> bytes:
    """Records that mostly repeat the one before them, as a controller writes them."""
    fields = draw(st.lists(FIELDS, max_size=6))
    written = []
    for _ in range(draw(st.integers(0, 4))):
        for at in draw(st.lists(st.integers(0, 6), max_size=2)):
            fields[at : at + 1] = draw(st.lists(FIELDS, max_size=2))
        gap = draw(GAPS)
        pairs = [b'"%s":%s%s' % (name.encode(), gap, token) for name, token in fields]
        written.append(b"{" + gap + (b"," + gap).join(pairs) + gap + b"}")
    return b"[" + b",".join(written) + b"]"


@st.composite
def whole_documents(draw: st.DrawFn) -> bytes:
    around = st.tuples(
        st.sampled_from(["errors", "meta", ""] * 3 + ["jobs", "\\u006aobs"]),
        st.sampled_from(TOKENS) | jobs(),
    )
    pairs = [("jobs", draw(jobs())), *draw(st.lists(around, max_size=2))]
    gap = draw(GAPS)
    listed = [b'%s"%s":%s' % (gap, name.encode(), token) for name, token in pairs]
    end = draw(st.sampled_from([b"", b"\n"] * 6 + [b" x", b"\0", b"}"]))
    return gap + b"{" + b",".join(draw(st.permutations(listed))) + b"}" + end


@settings(max_examples=300)
@given(whole_documents())
def test_a_document_of_any_values_is_read_alike(body: bytes) -> None:
    assert_agree(body)


@settings(max_examples=150)
@given(whole_documents(), st.randoms(use_true_random=False), st.integers(1, 3))
def test_a_document_with_mistakes_is_read_alike(
    body: bytes, chance: random.Random, mistakes: int
) -> None:
    for _ in range(mistakes):
        body = _broken(body or b"x", chance)
    assert_agree(body)


VALUES = st.integers() | st.text(max_size=24) | st.lists(st.text(max_size=4), max_size=2)
WORDS = ["name", "user_name", "job_state", "nodes", "comment", "exit_code", "x", "y"]


@settings(max_examples=100)
@given(st.lists(st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=6), max_size=5))
def test_what_is_well_written_is_left_to_nobody(records: list[dict[str, Any]]) -> None:
    found = assert_read(msgspec.json.encode({"jobs": records, "errors": []}))
    assert len(found.jobs or []) == len(records)


def listing(*records: bytes) -> bytes:
    return b'{"jobs": [%s]}' % b", ".join(records)


def test_a_value_that_only_begins_like_the_one_before_is_another_value() -> None:
    found = assert_read(
        listing(b'{"job_id": 12, "name": "a"}', b'{"job_id": 123, "name": "ab"}', b'{"job_id": 12}')
    )
    assert [(job.job_id, job.name) for job in found.jobs or []] == [
        (12, "a"),
        (123, "ab"),
        (12, ""),
    ]


@pytest.mark.parametrize("field", ["comment", "unused"])
def test_escapes_and_pairs_of_surrogates_are_left_to_nobody(field: str) -> None:
    written = b'{"%s": "\\u00e9 \\ud83d\\ude00 \\\\ \\" \\/"}' % field.encode()
    (job,) = assert_read(listing(written)).jobs or []
    assert job.comment == ('é 😀 \\ " /' if field == "comment" else "")


def test_a_field_that_is_missing_once_has_its_default_there() -> None:
    records = (b'{"name": "a", "qos": "q"}', b"{}", b'{"qos": "q"}', b'{"name": "a", "qos": "q"}')
    found = assert_read(listing(*records))
    assert [(job.name, job.qos) for job in found.jobs or []] == [
        ("a", "q"), ("", ""), ("", "q"), ("a", "q")
    ]  # fmt: skip


def test_of_a_field_that_stands_twice_the_last_counts() -> None:
    found = assert_read(listing(*[b'{"name": "a", "x": 1, "name": "b"}'] * 3))
    assert [job.name for job in found.jobs or []] == ["b"] * 3


@pytest.mark.parametrize("gap", [b" ", b"\n", b"   \n"])
def test_more_space_than_in_the_record_before_changes_nothing(gap: bytes) -> None:
    spaced = b'{"name":%s"a",%s"qos":%s"q"%s}' % (gap, gap, gap, gap)
    found = assert_read(listing(b'{"name":"a","qos":"q"}', spaced, b'{"name":"a","qos":"q"}'))
    assert [(job.name, job.qos) for job in found.jobs or []] == [("a", "q")] * 3


def test_a_record_of_very_many_fields_is_read_alike() -> None:
    unknown = b", ".join(b'"field_%d": {"set": true}' % n for n in range(3000))
    found = assert_read(listing(*[b'{%s, "name": "at the end"}' % unknown] * 3))
    assert [job.name for job in found.jobs or []] == ["at the end"] * 3


def test_more_different_values_than_are_remembered_are_read_alike() -> None:
    records = [b'{"job_id": %d, "user_name": "user%d"}' % (n, n % 1500) for n in range(4000)]
    found = assert_read(listing(*records))
    assert {(job.job_id, job.user_name) for job in found.jobs or []} == {
        (n, f"user{n % 1500}") for n in range(4000)
    }


@pytest.mark.parametrize("depth", [63, 64, 65, 10_000])
@pytest.mark.parametrize("shape", [(b"[", b"", b"]"), (b'{"a":', b"1", b"}")])
def test_any_depth_is_read_alike(depth: int, shape: tuple[bytes, bytes, bytes]) -> None:
    opening, inside, closing = shape
    deep = opening * depth + inside + closing * depth
    assert_agree(listing(b'{"x": %s}' % deep))
    assert_agree(listing(b'{"comment": %s}' % deep))


def test_reading_leaves_nothing_behind() -> None:
    good = listing(*[b'{"name": "n%d", "priority": {"number": %d}}' % (n, n) for n in range(50)])
    bodies = [good, good[:-9], good.replace(b'"n40"', b'"\xff"'), good + b" x"]

    def read_all() -> None:
        for body in bodies:
            told(read_jobs_in_native, body)

    read_all()
    before = sys.getallocatedblocks()
    for _ in range(20):
        read_all()
    assert sys.getallocatedblocks() - before < 200


def test_the_fields_asked_for_are_those_of_a_job() -> None:
    body = listing(b"{%s}" % b",".join(b'"%s": 5' % n.encode() for n in Job.__struct_fields__))
    (job,) = assert_read(body).jobs or []
    assert msgspec.structs.astuple(job) == (5,) * len(Job.__struct_fields__)
