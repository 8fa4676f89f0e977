"""Reservations: which hosts are kept for whom, and from when to when."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marey.model.errors import InvalidInput
from marey.model.events import ClusterEventKind, Event
from marey.model.names import bounded
from marey.model.times import format_time, parse_time
from marey.sources.slurm.slurm_json import SlurmReservation
from marey.sources.slurm.values import expand_hosts, parse_text, parse_time_ms, parse_words

_PAIR = re.compile(r"(\w+)=(\S*)")
FOR_LIMIT = 5


@dataclass(frozen=True, slots=True)
class HostReservation:
    """Hosts kept for some people over some time; ``maintenance`` keeps everybody out."""

    name: str
    start_ms: int | None
    end_ms: int | None
    hosts: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    maintenance: bool = False

    def describe(self) -> str:
        """Return one line for people, the same as long as the reservation is."""
        kind = "maintenance" if self.maintenance else "reservation"
        span = f"{_format_moment(self.start_ms)} to {_format_moment(self.end_ms)}"
        named = ", ".join(self.people[:FOR_LIMIT])
        more = f" and {len(self.people) - FOR_LIMIT} more" if len(self.people) > FOR_LIMIT else ""
        return bounded(f"{kind} {self.name}, {span}{f', for {named}{more}' if named else ''}")


def _format_moment(moment_ms: int | None) -> str:
    return "?" if moment_ms is None else format_time(moment_ms)


def make_reservation(reported: SlurmReservation, ahead_ms: int = 0) -> HostReservation:
    """Return a reservation of a JSON document (REST, and ``scontrol`` since 23.02)."""
    start, end = parse_time_ms(reported.start_time), parse_time_ms(reported.end_time)
    people = (*parse_text(reported.users).split(","), *parse_text(reported.accounts).split(","))
    return HostReservation(
        bounded(parse_text(reported.name)),
        None if start is None else start - ahead_ms,
        None if end is None else end - ahead_ms,
        hosts=tuple(bounded(host) for host in expand_hosts(parse_text(reported.node_list))),
        people=tuple(bounded(name) for name in people if name),
        maintenance="MAINT" in parse_words(reported.flags),
    )


def parse_reservations(listed: str) -> list[SlurmReservation]:
    """Parse ``scontrol show reservation`` of versions without JSON for it, asked with TZ=UTC."""
    found = []
    for block in listed.split("ReservationName=")[1:]:
        pairs = dict(_PAIR.findall("ReservationName=" + block))
        found.append(
            SlurmReservation(
                name=pairs.get("ReservationName", ""),
                start_time=_parse_seconds(pairs.get("StartTime", "")),
                end_time=_parse_seconds(pairs.get("EndTime", "")),
                node_list=pairs.get("Nodes", ""),
                users=pairs.get("Users", ""),
                accounts=pairs.get("Accounts", ""),
                flags=pairs.get("Flags", ""),
            )
        )
    return found


def _parse_seconds(written: str) -> Any:
    try:
        return parse_time(f"{written}Z") // 1000
    except InvalidInput:
        return None


@dataclass(slots=True)
class Calendar:
    """The reservations seen so far: what they say of each host, and what has begun or ended."""

    current: tuple[HostReservation, ...] = ()
    _begun: set[HostReservation] = field(default_factory=set)

    def reasons(self, now_ms: int) -> Mapping[str, str]:
        """Return for each reserved host the reservations that have not ended."""
        found: dict[str, list[str]] = {}
        for one in self.current:
            if one.end_ms is None or one.end_ms > now_ms:
                for host in one.hosts:
                    found.setdefault(host, []).append(one.describe())
        return {host: "; ".join(reported) for host, reported in found.items()}

    def update(self, reported: Iterable[HostReservation], now_ms: int) -> Sequence[Event]:
        """Return events of reservations that have begun, ended or been taken away since the last
        time.
        """
        self.current = tuple(reported)
        begun = {
            one
            for one in self.current
            if (one.start_ms or 0) <= now_ms and (one.end_ms is None or one.end_ms > now_ms)
        }
        events = [_make_event(one.start_ms or now_ms, one, "begins") for one in begun - self._begun]
        for one in self._begun - begun:
            over_ms = min(now_ms, one.end_ms or now_ms)
            events.append(_make_event(over_ms, one, "is over"))
        self._begun = begun
        return sorted(events, key=lambda event: (event.time_ms, event.text))


def _make_event(moment_ms: int, one: HostReservation, what: str) -> Event:
    hosts = f"{len(one.hosts)} host{'' if len(one.hosts) == 1 else 's'}"
    return Event(moment_ms, ClusterEventKind.RESERVATION, text=f"{one.describe()}, {hosts}: {what}")
