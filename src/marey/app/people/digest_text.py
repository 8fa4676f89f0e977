"""A digest in words: the subject and lead of a mail, plain text, and a page of its own."""

from __future__ import annotations

from marey.app.people.digest import Digest
from marey.model.system.html_templates import open_template
from marey.model.times import format_time

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;color:#1b242d;max-width:720px;margin:24px auto;"
    "padding:0 16px}h1{font-size:22px}h2{font-size:16px;margin-top:28px}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:6px 12px 6px 0;"
    "border-bottom:1px solid #dfe4e9;vertical-align:top}td.n,th.n{text-align:right;"
    "white-space:nowrap}p.lead{font-size:17px}small{color:#556270}"
)


def write_subject(digest: Digest) -> str:
    """Return the line that a mail is opened for."""
    now = digest.now
    whose = _name_subject(digest)
    if now.wasted_gpu_hours >= 1:
        return f"{whose}: {now.wasted_gpu_hours:,.0f} of {now.gpu_hours:,.0f} GPU-hours wasted"
    return f"{whose}: {now.gpu_hours:,.0f} GPU-hours, nothing wasted"


def _name_subject(digest: Digest) -> str:
    period = "Last week" if digest.days == 7 else f"Last {digest.days} days"
    return f"{period} on {digest.cluster}" if digest.kind == "site" else f"{period}, {digest.name}"


def write_lead(digest: Digest) -> str:
    """Return the digest in two or three sentences."""
    now, before = digest.now, digest.before
    lead = f"{now.jobs:,} jobs used {now.gpu_hours:,.0f} GPU-hours"
    if before.gpu_hours:
        change = 100 * (now.gpu_hours / before.gpu_hours - 1)
        lead += f" ({change:+.0f} % vs. the previous {digest.days} days)"
    lead += "."
    if now.efficiency is not None:
        lead += f" {100 * now.efficiency:.0f} % of them were used efficiently"
        if before.efficiency is not None:
            lead += f" (before: {100 * before.efficiency:.0f} %)"
        lead += f"; {now.wasted_gpu_hours:,.0f} GPU-hours were wasted."
    if now.failed:
        lead += f" {now.failed:,} job{'s' if now.failed != 1 else ''} failed."
    return lead


def print_digest_text(digest: Digest) -> str:
    """Return the digest as plain text, for a terminal and for mail without HTML."""
    lines = [write_subject(digest), "", write_lead(digest)]
    if digest.causes:
        lines += ["", "What cost most, and what to try:"]
        for cause in digest.causes:
            lines.append(f"- {cause.title}: {cause.gpu_hours:,.0f} GPU-hours, {cause.jobs} jobs.")
            if cause.next_step:
                lines.append(f"  {cause.next_step}")
    if digest.jobs:
        lines += ["", "Jobs that wasted most:"]
        lines += [
            f"- {job.name} ({job.workload}, {job.user}, {job.gpus} GPUs): "
            f"{job.wasted_gpu_hours:,.1f} GPU-hours; {', '.join(job.why)}"
            for job in digest.jobs
        ]
    if not digest.causes:
        lines += ["", "No waste found."]
    return "\n".join(lines)


def print_digest_html(digest: Digest, url: str = "") -> str:
    """Return the digest as a page that needs nothing else; names are escaped."""
    return open_template("marey.app.people", "digest.html").render(
        style=STYLE,
        subject=write_subject(digest),
        heading=_name_subject(digest),
        span=f"{format_time(digest.from_ms)} to {format_time(digest.to_ms)}",
        lead=write_lead(digest),
        digest=digest,
        whose="Project" if digest.kind == "site" else "User",
        url=url,
    )
