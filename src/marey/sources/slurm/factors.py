"""What a waiting job's priority is made of: ``sprio``, the one tool of Slurm that has no JSON."""

from __future__ import annotations

from collections.abc import Mapping

# Weighted factors, in Slurm's letters for --format (22.05 to 25.11).
COLUMNS = {
    "age": "%A", "fairshare": "%F", "job_size": "%J", "partition": "%P", "qos": "%Q",
    "association": "%B", "site": "%S", "nice": "%N", "tres": "%T",
}  # fmt: skip
FORMAT = "|".join(("%i", "%Y", *COLUMNS.values()))

Factors = Mapping[str, str]


def parse_factors(listed: str) -> dict[int, Factors]:
    """Return for each job id the factors that are not nothing.

    Of several partitions the best counts.
    """
    found: dict[int, tuple[float, Factors]] = {}
    for line in listed.splitlines():
        job, *reported = (part.strip() for part in line.split("|"))
        if not job.isdecimal() or len(reported) != len(COLUMNS) + 1:
            continue
        priority, *values = reported
        weight = float(priority) if priority.replace(".", "", 1).isdecimal() else 0.0
        factors = {
            f"priority.{name}": value
            for name, value in zip(COLUMNS, values, strict=True)
            if value not in ("", "0", "0.0")
        }
        if int(job) not in found or weight > found[int(job)][0]:
            found[int(job)] = (weight, factors)
    return {job: factors for job, (_, factors) in found.items()}
