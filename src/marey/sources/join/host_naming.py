"""One name for one host, however sources spell it: short or full, by address, or by its GPUs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from marey.model.inventory import Gpu
from marey.sources.exporter_labels import shorten_name
from marey.sources.join.conflicts import ConflictLog, Disagreement


class HostNames:
    """The scheduler's names, and how those who measure call the same hosts.

    In order: the same name; another name or address that the scheduler knows; the same name with
    and without its domain, where only one host can be meant; the same GPUs by UUID. Without a
    scheduler the name seen first counts.
    """

    def __init__(self, conflicts: ConflictLog) -> None:
        self._conflicts = conflicts
        self._scheduler: set[str] = set()
        self._aliases: dict[str, str] = {}
        self._by_short: dict[str, set[str]] = {}
        self._learned: dict[str, str] = {}
        self._known: dict[str, str] = {}
        # UUID → the host that last reported it, as it calls itself.
        self._uuids: dict[str, str] = {}
        self._first: set[str] = set()

    def scheduler_hosts(self) -> list[str]:
        """Return the hosts that the scheduler knows."""
        return sorted(self._scheduler)

    def take_scheduler(self, hosts: Iterable[str], aliases: Mapping[str, str]) -> bool:
        """Return the scheduler's hosts now; whether anything changed."""
        names = set(hosts)
        if names == self._scheduler and dict(aliases) == self._aliases:
            return False
        self._scheduler, self._aliases = names, dict(aliases)
        self._build_index(names)
        self._known.clear()
        return True

    def _build_index(self, names: set[str]) -> None:
        self._by_short = {}
        for name in names:
            self._by_short.setdefault(shorten_name(name), set()).add(name)

    def of(self, host: str) -> str:
        """Return the cluster's name of a host."""
        known = self._known.get(host)
        if known is None:
            known = self._known[host] = self._resolve_host(host)
        return known

    def _resolve_host(self, host: str) -> str:
        names = self._scheduler or self._first
        if host in names:
            return host
        for alias in (self._aliases, self._learned):
            if host in alias:
                return alias[host]
        short = shorten_name(host)
        same = {n for n in self._by_short.get(short, ()) if short in (n, host)}
        return next(iter(same)) if len(same) == 1 else host

    def renames(self) -> dict[str, str]:
        """Return names as measured that differ from the cluster's."""
        return {host: name for host, name in self._known.items() if host != name}

    def note_measured(
        self,
        source: str,
        hosts: set[str],
        gpus: Sequence[Gpu],
        *,
        now_ms: int,
        elsewhere: Collection[str] = (),
    ) -> dict[str, str]:
        """Return hosts measured now; old name → new of those that have changed theirs.

        ``elsewhere`` are hosts that other sources measure.
        """
        moved: dict[str, Gpu] = {}
        for gpu in gpus:
            if not gpu.uuid or gpu.host not in hosts:
                continue
            before = self._uuids.get(gpu.uuid)
            self._uuids[gpu.uuid] = gpu.host
            if before is None or before == gpu.host or self.of(before) == self.of(gpu.host):
                continue
            if before in hosts:
                self._record_measured_twice(source, gpu, before, now_ms)
            else:
                moved[before] = gpu
        renamed = {}
        for old, gpu in moved.items():
            kept = self.of(old)
            if self._is_other_label(kept, gpu.host, source, now_ms):
                continue
            if kept in elsewhere:
                self._record_measured_twice(source, gpu, old, now_ms)
                continue
            self._record_rename(source, old, gpu.host, now_ms)
            self._forget(old)
            renamed[kept] = self.of(gpu.host)
        return renamed

    def _forget(self, host: str) -> None:
        self._known.pop(host, None)
        if host in self._first:
            self._first.discard(host)
            self._by_short.get(shorten_name(host), set()).discard(host)

    def introduce(self, source: str, named: Iterable[str], now_ms: int) -> None:
        """Find the cluster's name of hosts that a source speaks of."""
        hosts = [host for host in named if host not in self._known]
        if not self._scheduler:
            # A full name before its short one, so that the order of hosts does not matter.
            for host in sorted(hosts, key=len, reverse=True):
                if self._resolve_host(host) == host:
                    self._first.add(host)
                    self._by_short.setdefault(shorten_name(host), set()).add(host)
        for host in hosts:
            name = self.of(host)
            if name != host:
                self._record_alias(
                    host, name, source, text="the same host under another name", now_ms=now_ms
                )
            elif self._scheduler and len(self._by_short.get(shorten_name(host), ())) > 1:
                self._record_alias(
                    host, host, source, text="several hosts have this short name", now_ms=now_ms
                )

    def note_again(self, source: str, hosts: set[str], now_ms: int) -> None:
        """Tell again which hosts have other names than the cluster's."""
        for host, name in self.renames().items():
            if host in hosts:
                self._record_alias(
                    host, name, source, text="the same host under another name", now_ms=now_ms
                )

    def _is_other_label(self, old: str, new: str, source: str, now_ms: int) -> bool:
        """Return whether the new name is only another label of a host that the
        scheduler still has.
        """
        if old in self._scheduler and self.of(new) not in self._scheduler:
            self._learned[new] = old
            self._known.pop(new, None)
            self._record_alias(new, old, source, text="the same GPUs by their UUIDs", now_ms=now_ms)
            return True
        return False

    def _record_rename(self, source: str, old: str, new: str, now_ms: int) -> None:
        text = "the same GPUs by their UUIDs"
        self._conflicts.note(
            Disagreement(
                "renamed",
                self.of(new),
                new,
                taken_from=source,
                other=old,
                other_from=source,
                text=text,
            ),
            now_ms,
        )

    def _record_measured_twice(self, source: str, gpu: Gpu, other: str, now_ms: int) -> None:
        said = Disagreement(
            "same_uuid",
            gpu.uuid,
            other,
            taken_from=source,
            other=gpu.host,
            other_from=source,
            text="two hosts report this GPU",
        )
        self._conflicts.note(said, now_ms)

    def _record_alias(self, host: str, name: str, source: str, *, text: str, now_ms: int) -> None:
        said = Disagreement(
            "host_name",
            host,
            name,
            taken_from="scheduler",
            other=host,
            other_from=source,
            text=text,
        )
        self._conflicts.note(said, now_ms)
