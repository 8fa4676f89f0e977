"""Changes of links: bandwidth, latency, one rank's link."""

from __future__ import annotations

from dataclasses import replace

from marey.replay.changes import Change
from marey.replay.families.data_parallel import DataParallel
from marey.replay.recording.link_costs import MESSAGES, Links, find_slow_links
from marey.replay.recording.workload import Plan, Refused, Workload
from marey.replay.words.refusals import refuse_change, state_assumption


def scale_link(run: Workload, change: Change) -> Workload:
    """Make all links, or one rank's, carry more or less."""
    factor = change.get_number()
    ranks = None if change.rank < 0 else (change.rank,)
    if ranks and change.rank not in run.links.ranks:
        raise Refused(f"{change}: unknown rank; this run has {len(run.links.ranks)} ranks.")
    if ranks and factor > 1 and run.links.measured_on != MESSAGES:
        raise refuse_change(
            run,
            change,
            "collectives over all ranks show their slowest link, not whose it is nor how fast the "
            "others are; link=xF says what faster links all around would do",
        )
    return use_links(run, run.links.faster(factor, ranks))


def scale_latency(run: Workload, change: Change) -> Workload:
    """Make every latency longer or shorter."""
    return use_links(run, run.links.delayed(change.get_number()))


def use_links(run: Workload, links: Links) -> Workload:
    """Return the run over other links."""
    plan: Plan = replace(run.plan, links=links)
    return replace(run, plan=plan)


def fix_link(run: Workload, change: Change) -> Workload:
    """Make links of ranks as fast as the others."""
    slow = find_slow_links(run.links)
    asked = change.get_counts()
    missing = [rank for rank in asked if rank not in slow]
    if missing:
        raise refuse_change(
            run,
            change,
            f"the trace does not show how much slower the link of rank {missing[0]} is than the "
            "others; say by how much with link-of-rank-N=xF",
        )
    usual = max(run.links.up)
    links = run.links
    for rank in asked:
        links = links.faster(usual / links.up[links.ranks.index(rank)], (rank,))
    return use_links(run, links)


def change_collective(run: Workload, change: Change) -> Workload:
    """Bring gradients together by a ring, a tree, or within hosts first."""
    name, per_host = change.get_algorithm()
    if not isinstance(run.plan, DataParallel):
        raise refuse_change(run, change, "it is about gradients brought together by all-reduce")
    if name == "ring":
        return run
    if name == "tree":
        changed = use_links(run, run.links.by_tree())
        return state_assumption(changed, "a double tree moves as many bytes as a ring")
    if len(run.links.ranks) % per_host:
        raise refuse_change(run, change, f"{len(run.links.ranks)} ranks do not fill such hosts")
    changed = use_links(run, run.links.by_hosts(per_host))
    return state_assumption(changed, "nothing is lost within a host")
