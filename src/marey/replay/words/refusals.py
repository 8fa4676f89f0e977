"""What every change needs: refusing, reading a run again, saying what is assumed."""

from __future__ import annotations

from dataclasses import replace

from marey.replay.changes import Change
from marey.replay.recording.workload import (
    Plan,
    Refused,
    Timelines,
    Workload,
    read_matched,
    read_timed,
)


def refuse_change(run: Workload, change: Change, why: str) -> Refused:
    """Return the refusal of a change, with why and what the run is."""
    return Refused(f"{change}: {why} (this run is {_ARTICLE[run.strategy]}).")


_ARTICLE = {
    "data-parallel": "data-parallel",
    "pipeline": "a pipeline",
    "parameter-server": "trained with parameter servers",
    "sharded": "sharded",
    "device": "on devices",
    "recorded": "of no strategy that Marey recognises",
}


def retime_run(run: Workload, timelines: Timelines) -> Workload:
    """Return the same run read again from other timelines, with the links it has."""
    if run.strategy == "parameter-server":
        plan: Plan = read_matched(timelines, run.links)
        return replace(run, plan=plan, timelines=timelines)
    again = read_timed(timelines, run.links)
    return replace(again, extrapolated=run.extrapolated)


def state_assumption(run: Workload, what: str) -> Workload:
    """Return the run with one more thing said to be assumed."""
    return replace(run, extrapolated=(*run.extrapolated, what))
