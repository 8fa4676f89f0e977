"""The digest: sums against the days before, causes with a next step, names that cannot break it."""

from __future__ import annotations

import msgspec
import pytest

from marey.app.people.digest import (
    Digest,
    DigestCause,
    DigestFigures,
    DigestJob,
    DigestShare,
    read_digest,
)
from marey.app.people.digest_text import print_digest_html, print_digest_text, write_subject
from marey.app.people.scheduled_digests import send_digest
from marey.notify.receivers import Mail

FIGURES = DigestFigures(
    jobs=12, failed=1, gpu_hours=200.0, wasted_gpu_hours=50.0, efficiency=0.75, median_wait_s=60.0
)


@pytest.fixture
def digest() -> Digest:
    return Digest(
        kind="user",
        name="<b>ada</b>\nBcc: all@example.org",
        cluster="default",
        days=7,
        from_ms=0,
        to_ms=7 * 86_400_000,
        now=FIGURES,
        before=msgspec.structs.replace(FIGURES, gpu_hours=100.0, efficiency=0.9),
        jobs=[
            DigestJob(
                workload="4711",
                name="train<script>",
                user="ada",
                gpus=8,
                wasted_gpu_hours=40.0,
                why=["Allocated GPUs never used"],
            )
        ],
        causes=[
            DigestCause(
                rule="never-used",
                title="Allocated GPUs never used",
                jobs=1,
                gpu_hours=40.0,
                next_step="Request fewer GPUs.",
            )
        ],
        shares=[DigestShare(name="vision", gpu_hours=200.0, wasted_gpu_hours=50.0)],
    )


def test_it_says_what_changed_what_cost_most_and_what_to_try(digest: Digest) -> None:
    text = print_digest_text(digest)
    assert "50 of 200 GPU-hours wasted" in text
    assert "(+100 % vs. the previous 7 days)" in text
    assert "75 % of them were used efficiently (before: 90 %)" in text
    assert "Request fewer GPUs." in text
    assert read_digest(msgspec.to_builtins(digest)) == digest


def test_names_are_text_in_the_page_and_one_line_in_the_mail(
    digest: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = print_digest_html(digest)
    assert "<script>" not in page
    assert "train&lt;script&gt;" in page
    assert '<td>vision</td><td class="n">200</td>' in page
    assert "Request fewer GPUs." in page
    assert 'href="https://site.example/?a=1&amp;b=2"' in print_digest_html(
        digest, "https://site.example/?a=1&b=2"
    )
    sent = []
    monkeypatch.setattr(Mail, "send", lambda self, message: sent.append(message))
    mail = Mail("mail", "smtp.example.org", "marey@example.org", to=("ops@example.org",))
    assert send_digest(digest, mail, ["ada@example.org"], "") == ("ada@example.org",)
    (message,) = sent
    assert message["To"] == "ada@example.org"
    assert message["Bcc"] is None
    assert "\n" not in message["Subject"]
    kinds = [part.get_content_type() for part in message.iter_parts()]
    assert kinds == ["text/plain", "text/html"]
    assert write_subject(digest).endswith("50 of 200 GPU-hours wasted")
