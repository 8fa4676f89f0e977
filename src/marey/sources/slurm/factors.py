"""What a waiting job's priority is made of: ``sprio``, the one tool of Slurm that has no JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from marey.model.workloads import AGE_WEIGHT, MAX_AGE

# Weighted factors, in Slurm's letters for --format (22.05 to 25.11).
COLUMNS = {
    "age": "%A", "fairshare": "%F", "job_size": "%J", "partition": "%P", "qos": "%Q",
    "association": "%B", "site": "%S", "nice": "%N", "tres": "%T",
}  # fmt: skip
NO_AGING: Mapping[str, str] = MappingProxyType({})
FORMAT = "|".join(("%i", "%Y", *COLUMNS.values()))

Factors = Mapping[str, str]
_SETTING = re.compile(r"^(PriorityWeightAge|PriorityMaxAge|PriorityType)\s*=\s*(\S+)", re.MULTILINE)
_SPAN = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)")


def parse_aging(listed: str) -> Factors:
    """Return how priorities age by ``scontrol show config``; empty where it does not say.

    Other plugins than multifactor do not age a priority by a weight.
    """
    found = dict(_SETTING.findall(listed))
    weight, span = found.get("PriorityWeightAge", ""), _SPAN.match(found.get("PriorityMaxAge", ""))
    if "multifactor" not in found.get("PriorityType", "") or not weight.isdecimal() or not span:
        return {}
    days, hours, minutes, seconds = (int(part or 0) for part in span.groups())
    longest_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return {AGE_WEIGHT: weight, MAX_AGE: str(longest_s)}


def parse_factors(listed: str, aging: Factors = NO_AGING) -> dict[int, Factors]:
    """Return for each job id the factors that are not nothing, and how its priority ages.

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
        } | dict(aging)
        if int(job) not in found or weight > found[int(job)][0]:
            found[int(job)] = (weight, factors)
    return {job: factors for job, (_, factors) in found.items()}
