"""The parts of a policy that have a shape of their own: hosts, partitions, reservations,
preemption, shared GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from marey.model.errors import InvalidInput, shown, unknown

PREEMPTIONS = ("off", "requeue", "resume")


@dataclass(frozen=True)
class HostKind:
    """So many equal hosts; CPUs and memory 0 where they do not matter."""

    count: int
    gpus: int
    model: str = ""
    cpus: int = 0
    memory_mb: int = 0


@dataclass(frozen=True)
class AddedHosts:
    """So many hosts more (or fewer, if negative) of a GPU model; "" is any."""

    count: int
    model: str = ""


@dataclass(frozen=True)
class PartitionRule:
    """A partition: its hosts (names, or so many of a model), and whom it takes."""

    name: str
    hosts: tuple[str, ...] = ()
    model: str = ""
    # Of the hosts of that model, so many from this place on; 0: all of them.
    count: int = 0
    first: int = 0
    min_gpus: int = 0
    max_gpus: int = 0
    max_time_s: float = 0.0
    max_gpus_per_user: int = 0
    # So many GPUs may its jobs hold together; 0: all.
    max_gpus_in_use: int = 0
    # Higher tiers come first, and may evict lower ones where preemption is on.
    tier: int = 0


@dataclass(frozen=True)
class QosRule:
    """The limits of a quality of service; 0: none."""

    name: str
    max_gpus_per_user: int = 0
    max_jobs_per_user: int = 0
    max_gpus: int = 0


@dataclass(frozen=True)
class Reservation:
    """Hosts kept from everybody but some users, in seconds from the first submission."""

    begin_s: float
    end_s: float
    hosts: tuple[str, ...] = ()
    count: int = 0
    user: str = ""


@dataclass(frozen=True)
class Preemption:
    """Who may evict whom: favoured jobs evict the others, which then start anew or resume."""

    mode: str = "off"
    users: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    # Jobs of at most so many GPUs are favoured; 0: size does not matter.
    max_gpus: int = 0


@dataclass(frozen=True)
class Sharing:
    """How GPUs are shared: jobs of one GPU get this part of it (0: what they asked for)."""

    share: float = 0.0
    # False: who asked for a part of a GPU gets a whole one.
    allowed: bool = True


def read_number(name: str, value: Any) -> float:
    """Return a number from 0 up."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < float("inf"):
        raise InvalidInput(f"{name} is {shown(value)}; a number from 0 up is allowed.")
    return float(value)


def read_hosts(found: Any) -> tuple[HostKind, ...]:
    """Return the hosts of ``[{"count": 4, "gpus": 8}, …]``."""
    kinds = tuple(
        HostKind(
            count=int(read_number("hosts.count", _require(entry, "count", "hosts"))),
            gpus=int(read_number("hosts.gpus", _require(entry, "gpus", "hosts"))),
            model=str(entry.get("model", "")),
            cpus=int(read_number("hosts.cpus", entry.get("cpus", 0))),
            memory_mb=int(read_number("hosts.memory_mb", entry.get("memory_mb", 0))),
        )
        for entry in _read_objects("hosts", found, {"count", "gpus", "model", "cpus", "memory_mb"})
    )
    for kind in kinds:
        if kind.gpus > 64:
            raise InvalidInput(f"A host of {kind.gpus} GPUs; at most 64 are allowed.")
    return kinds


def read_added_hosts(found: Any) -> tuple[AddedHosts, ...]:
    """Return the hosts of ``[{"count": 2, "model": "A100"}, {"count": -1, "model": "V100"}]``."""
    if isinstance(found, int) and not isinstance(found, bool):
        found = [{"count": found}] if found else []
    added = []
    for entry in _read_objects("add_hosts", found, {"count", "model"}):
        count = _require(entry, "count", "add_hosts")
        if not isinstance(count, int) or isinstance(count, bool) or abs(count) > 100_000:
            raise InvalidInput(
                f"add_hosts.count is {shown(count)}; a whole number, negative for fewer hosts, is "
                "allowed."
            )
        added.append(AddedHosts(count, str(entry.get("model", ""))))
    return tuple(added)


_PARTITION_NUMBERS = (
    "count", "first", "min_gpus", "max_gpus", "max_time_s", "max_gpus_per_user",
    "max_gpus_in_use", "tier",
)  # fmt: skip


def read_partitions(found: Any) -> tuple[PartitionRule, ...]:
    """Return the partitions of ``[{"name": "small", "hosts": ["n1"], "max_gpus": 2}, …]``."""
    allowed = {"name", "hosts", "model", *_PARTITION_NUMBERS}
    rules = []
    for entry in _read_objects("partitions", found, allowed):
        numbers = {
            name: read_number(f"partitions.{name}", entry[name])
            for name in _PARTITION_NUMBERS
            if name in entry
        }
        whole = {name: int(value) for name, value in numbers.items() if name != "max_time_s"}
        rules.append(
            PartitionRule(
                name=str(_require(entry, "name", "partitions")),
                hosts=_read_names("partitions.hosts", entry.get("hosts", ())),
                model=str(entry.get("model", "")),
                max_time_s=numbers.get("max_time_s", 0.0),
                **whole,
            )
        )
    if len({rule.name for rule in rules}) < len(rules):
        raise InvalidInput("Two partitions of the policy have the same name.")
    return tuple(rules)


_QOS_NUMBERS = ("max_gpus_per_user", "max_jobs_per_user", "max_gpus")


def read_qos(found: Any) -> tuple[QosRule, ...]:
    """Return the limits of ``[{"name": "normal", "max_gpus_per_user": 16}]``."""
    rules = [
        QosRule(
            str(_require(entry, "name", "qos")),
            **{
                name: int(read_number(f"qos.{name}", entry[name]))
                for name in _QOS_NUMBERS
                if name in entry
            },
        )
        for entry in _read_objects("qos", found, {"name", *_QOS_NUMBERS})
    ]
    if len({rule.name for rule in rules}) < len(rules):
        raise InvalidInput("Two entries of qos have the same name.")
    return tuple(rules)


def read_reservations(found: Any) -> tuple[Reservation, ...]:
    """Return the reservations of ``[{"begin_s": 0, "end_s": 3600, "count": 2, "user": "ada"}]``."""
    kept = []
    allowed = {"begin_s", "end_s", "hosts", "count", "user"}
    for entry in _read_objects("reservations", found, allowed):
        begin = read_number("reservations.begin_s", _require(entry, "begin_s", "reservations"))
        end = read_number("reservations.end_s", _require(entry, "end_s", "reservations"))
        if end <= begin:
            raise InvalidInput(f"A reservation from {begin:g} s to {end:g} s ends before it began.")
        kept.append(
            Reservation(
                begin,
                end,
                hosts=_read_names("reservations.hosts", entry.get("hosts", ())),
                count=int(read_number("reservations.count", entry.get("count", 0))),
                user=str(entry.get("user", "")),
            )
        )
    return tuple(kept)


def read_preemption(found: Any) -> Preemption:
    """Return the preemption of ``{"mode": "requeue", "projects": ["urgent"], "max_gpus": 2}``."""
    if isinstance(found, str):
        found = {"mode": found}
    (entry,) = _read_objects("preemption", [found], {"mode", "users", "projects", "max_gpus"})
    mode = entry.get("mode", "requeue")
    if mode not in PREEMPTIONS:
        raise InvalidInput(unknown("preemption", mode, PREEMPTIONS))
    return Preemption(
        str(mode),
        users=_read_names("preemption.users", entry.get("users", ())),
        projects=_read_names("preemption.projects", entry.get("projects", ())),
        max_gpus=int(read_number("preemption.max_gpus", entry.get("max_gpus", 0))),
    )


def read_sharing(found: Any) -> Sharing:
    """Return the sharing of ``true``, ``false`` or the part of a GPU that jobs of one GPU get."""
    if isinstance(found, bool):
        return Sharing(allowed=found)
    share = read_number("sharing", found)
    if not 0.001 <= share <= 1.0:
        raise InvalidInput(
            f"sharing is {shown(found)}; true, false or a part of a GPU from 0.001 to 1 is allowed."
        )
    return Sharing(share=share)


def _require(entry: dict[str, Any], name: str, where: str) -> Any:
    if name not in entry:
        raise InvalidInput(f"An entry of {where} has no '{name}': {shown(entry)}.")
    return entry[name]


def _read_objects(name: str, found: Any, allowed: set[str]) -> list[dict[str, Any]]:
    entries = found if found is not None else []
    if not isinstance(entries, list | tuple) or any(not isinstance(e, dict) for e in entries):
        raise InvalidInput(f"{name} is {shown(found)}; a list of objects is allowed.")
    for entry in entries:
        for key in entry:
            if key not in allowed:
                raise InvalidInput(unknown(f"setting of {name}", key, allowed))
    return list(entries)


def _read_names(name: str, found: Any) -> tuple[str, ...]:
    if isinstance(found, str):
        return (found,) if found else ()
    if not isinstance(found, list | tuple) or any(not isinstance(one, str) for one in found):
        raise InvalidInput(f"{name} is {shown(found)}; a list of names is allowed.")
    return tuple(found)
