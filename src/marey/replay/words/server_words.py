"""Changes of who keeps parameters: servers, all-reduce, sharding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from marey.replay.changes import Change
from marey.replay.families.data_parallel import DEFAULT_BUCKET_BYTES, DEFAULT_FIRST_BYTES
from marey.replay.families.fully_sharded import gather_again, keep_parameters
from marey.replay.families.parameter_server import change_servers, use_all_reduce
from marey.replay.recording.recorded import RecordedPrograms
from marey.replay.recording.workload import Workload
from marey.replay.words.refusals import refuse_change, state_assumption


def leave_servers(run: Workload, change: Change) -> Workload:
    """Bring gradients together by all-reduce; servers train as well."""
    if run.strategy != "parameter-server":
        raise refuse_change(run, change, "only a run with parameter servers can leave them")
    plan = use_all_reduce(run.timelines, run.servers, run.links)
    plan = replace(plan, bucket_bytes=DEFAULT_BUCKET_BYTES, first_bucket_bytes=DEFAULT_FIRST_BYTES)
    changed = replace(run, strategy="data-parallel", plan=plan, servers=())
    return state_assumption(changed, "all-reduce from the speed of messages; servers train as well")


def use_servers(run: Workload, change: Change) -> Workload:
    """Spread the tensors over more or fewer servers."""
    if run.strategy != "parameter-server" or not isinstance(run.plan, RecordedPrograms):
        raise refuse_change(run, change, "only a run with parameter servers can have more or fewer")
    count = change.get_count()
    plan = change_servers(run.plan, run.servers, count)
    order = [*run.servers, *(r for r in run.plan.ranks if r not in run.servers)]
    changed = replace(run, plan=plan, servers=tuple(sorted(order[:count])))
    if count <= len(run.servers):
        return changed
    return state_assumption(
        changed, "links of the new servers, taken to be as fast as the recorded ones'"
    )


def refuse_unseen_links(run: Workload, changes: Sequence[Change]) -> None:
    """Refuse more servers beside a slower link of a recorded one.

    Everything passes through the recorded servers, so their links are all that the trace shows:
    others are taken to be as fast, and the request says that these are not.
    """
    if run.strategy != "parameter-server":
        return
    more = any(c.word == "servers" and c.get_count() > len(run.servers) for c in changes)
    for change in changes:
        if (
            more
            and change.word == "link"
            and change.rank in run.servers
            and change.get_number() < 1
        ):
            raise refuse_change(
                run,
                change,
                "the trace shows the links of its servers, not how fast those of new ones are; "
                "link=xF says what slower links all around would do",
            )


def change_reshard(run: Workload, change: Change) -> Workload:
    """Let parameters go after the forward pass, or keep them."""
    if run.strategy != "sharded" or not isinstance(run.plan, RecordedPrograms):
        raise refuse_change(run, change, "only sharded training gathers parameters")
    change_plan = gather_again if change.value == "on" else keep_parameters
    return replace(run, plan=change_plan(run.plan))


def place_tensors(run: Workload, change: Change) -> Workload:
    """Deal the tensors to the servers in turn or by size."""
    if run.strategy != "parameter-server" or not isinstance(run.plan, RecordedPrograms):
        raise refuse_change(run, change, "only parameter servers have tensors dealt to them")
    by_size = change.value == "size"
    plan = change_servers(run.plan, run.servers, len(run.servers), by_size=by_size)
    return replace(run, plan=plan)
