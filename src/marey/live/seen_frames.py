"""A frame as a scope sees it; what several scopes see alike is encoded once for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import pyarrow as pa

from marey.live.frames import Changes, Frame, LiveWorkload, Units, build_workloads_table
from marey.live.masked_rows import MaskedRows
from marey.live.wire_format import Part, table_part
from marey.model.access.identity import Privacy
from marey.model.access.pseudonyms import Pseudonyms
from marey.model.access.scope import Scope
from marey.model.access.sight import Sight
from marey.model.workloads import WorkloadStatus

# Instead of a source's error, which may name anybody.
WITHHELD = "Operators can see the error."
# The project of work that is not shown, where it is only summed up.
OTHERS = "others"
_TABLES = ("units", "workloads")


def see_frame(frame: Frame, sight: Sight) -> Frame:
    """Return the frame as a scope sees it: the same one for everybody with that scope."""
    if sight.scope.is_open:
        return frame
    return frame.note(("seen", sight.scope), lambda: SeenFrame(frame, sight))


@dataclass(frozen=True, slots=True)
class _ByOwner:
    """Workloads by user and project, so that a scope finds its own without looking at all."""

    users: Mapping[str, Sequence[str]]
    projects: Mapping[str, Sequence[str]]

    def find_known(self, scope: Scope) -> tuple[str, ...]:
        """Return the workloads that a scope sees under their real names, in a fixed order."""
        found = set(self.users.get(scope.user, ())) if scope.knows(scope.user, "") else set()
        for project in scope.projects:
            if scope.knows("", project):
                found.update(self.projects.get(project, ()))
        return tuple(sorted(found))


def _group_by_owner(workloads: Iterable[LiveWorkload]) -> _ByOwner:
    users: dict[str, list[str]] = defaultdict(list)
    projects: dict[str, list[str]] = defaultdict(list)
    for live in workloads:
        workload = live.workload
        users[workload.user].append(workload.workload)
        projects[workload.project].append(workload.workload)
    return _ByOwner(users, projects)


class _ShownHolders(Sequence[tuple[str, ...]]):
    """Who holds each GPU, as somebody is told; worked out row by row."""

    def __init__(self, held: Sequence[tuple[str, ...]], show: Callable[[str], str | None]) -> None:
        self._held = held
        self._show = show

    def __len__(self) -> int:
        return len(self._held)

    @overload
    def __getitem__(self, at: int) -> tuple[str, ...]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[tuple[str, ...]]: ...

    def __getitem__(self, at: Any) -> Any:
        """The holders of one GPU."""
        held = self._held[at]
        if isinstance(at, slice):
            return _ShownHolders(held, self._show)
        return tuple(name for name in map(self._show, held) if name is not None) if held else held


class _ShownWorkloads(Mapping[str, LiveWorkload]):
    """What waits or runs by the ids that are shown; made when somebody first looks."""

    def __init__(self, make: Callable[[], dict[str, LiveWorkload]]) -> None:
        self._make = make
        self._made: dict[str, LiveWorkload] | None = None

    def _get(self) -> dict[str, LiveWorkload]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, name: str) -> LiveWorkload:
        return self._get()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._get())

    def __len__(self) -> int:
        return len(self._get())


class _MaskedWorkloads:
    """A frame's workloads as somebody sees them who knows nobody: the same for every scope.

    Each is masked when first asked for. A scope's own rows are never kept here.
    """

    def __init__(self, whole: Frame, pseudonyms: Pseudonyms) -> None:
        self._whole = whole
        self._nobody = Sight(Scope(Privacy.PSEUDONYMOUS), pseudonyms)
        self._made: dict[str, LiveWorkload] = {}
        self._rows: MaskedRows | None = None

    def get(self, name: str) -> LiveWorkload:
        """Return the workload of this real id, masked."""
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = _mask_live(self._whole.workloads[name], self._nobody)
        return made

    def get_id(self, name: str) -> str:
        """Return what the workload of this real id is called."""
        return self.get(name).workload.workload

    def list_changed(self) -> MaskedRows:
        """Return the rows of those that changed."""
        if self._rows is None:
            places, changed = self._whole.positions(), self._whole.changes.workloads
            shown = {self.get_id(name): places[name] for name in changed if name in places}
            self._rows = MaskedRows([self.get(name) for name in changed], shown)
        return self._rows


def _mask_frame(whole: Frame, pseudonyms: Pseudonyms) -> _MaskedWorkloads:
    return whole.note(("masked", pseudonyms), lambda: _MaskedWorkloads(whole, pseudonyms))


class SeenFrame(Frame):
    """The same tick: metrics are the frame's own, names are those that the scope is shown.

    Units and workloads are encoded per set of own workloads among what they tell: all scopes that
    have none there share one encoding. Others' work is masked once for all scopes, as somebody who
    knows nobody sees it; each scope then gets its own rows in their place.
    """

    __slots__ = ("_masked", "_sight", "_whole")

    _whole: Frame
    _sight: Sight
    _masked: _MaskedWorkloads

    def __init__(self, whole: Frame, sight: Sight) -> None:
        put = object.__setattr__
        put(self, "_whole", whole)
        put(self, "_sight", sight)
        put(self, "_masked", _mask_frame(whole, sight.pseudonyms))
        super().__init__(
            cluster=whole.cluster,
            seq=whole.seq,
            time_ms=whole.time_ms,
            units=replace(
                whole.units, workloads=_ShownHolders(whole.units.workloads, self._show_id)
            ),
            workloads=_ShownWorkloads(self._show_all),
            queue=(),
            columns=whole.columns,
            before=whole.before,
            changes=self._show_changes(),
            sources=whole.note("sources", lambda: [_withhold(one) for one in whole.sources]),
            speed=whole.speed,
        )

    def positions(self) -> Mapping[str, int]:
        """Those who wait and are shown, by their place among all."""
        places = self._whole.positions()
        shown = ((self._show_id(name), place) for name, place in places.items())
        return {name: place for name, place in shown if name is not None}

    def get_part(self, name: str, form: str) -> Part:
        """A piece of a message, shared with every scope to which it tells the same."""
        if name not in _TABLES:
            return self._whole.get_part(name, form)
        key = ("part", name, form, self._sight.scope.privacy, self._find_told(name, form))
        return self._whole.note(key, lambda: self._encode_table(name, form))

    def _find_told(self, name: str, form: str) -> tuple[str, ...]:
        """Return which of the workloads that a part tells of are shown under their real names."""
        whole = self._whole
        if form == "full":
            about = whole.note("all", lambda: _group_by_owner(whole.workloads.values()))
        elif name == "workloads":
            about = self._group_changed()
        else:
            about = whole.note("holders", lambda: _group_by_owner(_list_holders(whole)))
        return about.find_known(self._sight.scope)

    def _group_changed(self) -> _ByOwner:
        whole = self._whole
        return whole.note(
            "changed",
            lambda: _group_by_owner(whole.workloads[name] for name in whole.changes.workloads),
        )

    def _encode_table(self, name: str, form: str) -> Part:
        if name == "workloads":
            return table_part(
                name, self.workloads_table() if form == "full" else self._changed_table()
            )
        rows = None if form == "full" else self.changes.units
        return table_part(name, self.units.table(rows).drop(["uuid"]))

    def _changed_table(self) -> pa.Table:
        own, places = self._own_rows(), self._whole.positions()
        # Of one's own there are few: nothing need be made of the others.
        if self._sight.scope.hides:
            return build_workloads_table(list(own.values()), places)
        return self._masked.list_changed().put_in(own, places)

    def _own_rows(self) -> dict[int, LiveWorkload]:
        """Return the changed workloads with real names, by their place among all that changed."""
        whole = self._whole
        rows = whole.note("rows", lambda: {n: at for at, n in enumerate(whole.changes.workloads)})
        known = self._find_told("workloads", "changed")
        return {rows[name]: whole.workloads[name] for name in known}

    def _show_changes(self) -> Changes:
        whole, scope = self._whole, self._sight.scope
        known = self._group_changed().find_known(scope)
        shown = known
        if not scope.hides:
            key = ("changed", scope.privacy, known)
            shown = whole.note(key, lambda: self._masked.list_changed().list_ids(self._own_rows()))
        gone = [self._show_gone(live) for live in whole.changes.gone.values()]
        return Changes(
            units=whole.changes.units,
            removed_units=whole.changes.removed_units,
            workloads=shown,
            removed_workloads=tuple(name for name in gone if name is not None),
        )

    def _show_gone(self, live: LiveWorkload) -> str | None:
        shown = self._sight.show_workload(live.workload)
        return None if shown is None else shown.workload

    def _show_all(self) -> dict[str, LiveWorkload]:
        whole = self._whole
        known = self._find_told("workloads", "full")
        if self._sight.scope.hides:
            return {name: whole.workloads[name] for name in known}
        own = frozenset(known)
        shown = (
            live if name in own else self._masked.get(name)
            for name, live in whole.workloads.items()
        )
        return {live.workload.workload: live for live in shown}

    def _show_id(self, workload: str) -> str | None:
        live = self._whole.workloads.get(workload)
        if live is not None and self._sight.knows(live.workload.user, live.workload.project):
            return workload
        if self._sight.scope.hides:
            return None
        # Something may hold a GPU before anybody has said whose it is.
        return self._masked.get_id(workload) if live else self._sight.show_id(workload)


def _list_holders(frame: Frame) -> Iterator[LiveWorkload]:
    """Yield the workloads that hold one of the GPUs that changed."""
    held = frame.units.workloads
    names = {name for row in frame.changes.units.tolist() for name in held[row]}
    return (frame.workloads[name] for name in names if name in frame.workloads)


def _show_live(live: LiveWorkload, sight: Sight) -> LiveWorkload | None:
    shown = sight.show_workload(live.workload)
    if shown is None or shown is live.workload:
        return None if shown is None else live
    return _mask_live(live, sight)


def _mask_live(live: LiveWorkload, sight: Sight) -> LiveWorkload:
    masked = sight.mask_workload(live.workload)
    return LiveWorkload(masked, _show_status(live, masked.workload, sight))


def _show_status(live: LiveWorkload, name: str, sight: Sight) -> WorkloadStatus:
    return replace(live.status, workload=name, reason=sight.show_reason(live.status.reason))


def _withhold(source: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**source, "error": WITHHELD} if source.get("error") else source


def anonymise_frame(frame: Frame, sight: Sight) -> Frame:
    """Return the frame for sums and simulations: what is not shown is there without any name."""
    if sight.scope.is_open:
        return frame
    return frame.note(("anonymous", sight.scope), lambda: _anonymise(frame, sight))


def _anonymise(frame: Frame, sight: Sight) -> Frame:
    shown: dict[str, LiveWorkload] = {}
    for live in frame.workloads.values():
        number = len(shown)
        known = _show_live(live, sight)
        shown[live.workload.workload] = known or _strip_names(live, f"{OTHERS}-{number}", sight)
    names = {real: live.workload.workload for real, live in shown.items()}
    units = Units(
        frame.units.still,
        frame.units.state,
        frame.units.reason,
        _ShownHolders(frame.units.workloads, lambda name: names.get(name, OTHERS)),
    )
    return replace(
        frame,
        units=units,
        workloads={live.workload.workload: live for live in shown.values()},
        queue=tuple(names[name] for name in frame.queue),
        changes=Changes(frame.changes.units),
        _parts={},
        notes={},
    )


def _strip_names(live: LiveWorkload, name: str, sight: Sight) -> LiveWorkload:
    workload = replace(
        live.workload,
        workload=name,
        name="",
        user=OTHERS,
        project=OTHERS,
        experiment="",
        qos="",
        attributes={},
    )
    return LiveWorkload(workload, _show_status(live, name, sight))
