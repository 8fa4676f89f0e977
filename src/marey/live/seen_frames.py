"""A frame as a scope sees it; what several scopes see alike is encoded once for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import pyarrow as pa

from marey.live.frames import (
    Changes,
    Frame,
    LiveWorkload,
    SourceHeader,
    Units,
    join_columns,
    list_columns,
)
from marey.live.wire_format import Part, json_part, table_part
from marey.model.access.identity import Privacy
from marey.model.access.machine_texts import show_machine_text
from marey.model.access.pseudonyms import Pseudonyms
from marey.model.access.record_mask import RecordMask
from marey.model.access.scope import Scope
from marey.model.workloads import WorkloadStatus

# Instead of a source's error, which may name anybody.
WITHHELD = "Operators can see the error."
# The project of work that is not shown, where it is only summed up.
OTHERS = "others"
_TABLES = ("units", "workloads")


def see_frame(frame: Frame, mask: RecordMask) -> Frame:
    """Return the frame as a scope sees it: the same one for everybody with that scope."""
    if mask.scope.is_open:
        return frame
    return frame.note(("seen", mask.scope), lambda: SeenFrame(frame, mask))


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
    """Who holds each GPU, as far as somebody may see it; worked out row by row."""

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
        self._nobody = RecordMask(Scope(Privacy.PSEUDONYMOUS), pseudonyms)
        self._made: dict[str, LiveWorkload] = {}

    def get(self, name: str) -> LiveWorkload:
        """Return the workload of this real id, masked."""
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = _mask_live(self._whole.workloads[name], self._nobody)
        return made

    def get_id(self, name: str) -> str:
        """Return the shown id of the workload with this real id."""
        return self._nobody.show_id(name)

    def list_ids(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the shown ids of the workloads with these real ids."""
        return tuple(map(self.get_id, names))

    def build_table(self, names: Iterable[str]) -> pa.Table:
        """Return these workloads as a table in which nobody is named, as ``get`` masks each."""
        nobody = self._nobody
        listed = [self._whole.workloads[name] for name in names]
        columns = list_columns(listed, self._whole.positions(), named=False)
        shown = {
            "id": nobody.show_id,
            "user": nobody.show_user,
            "project": nobody.show_project,
            "reason": nobody.show_reason,
        }
        for name, show in shown.items():
            columns[name] = list(map(show, columns[name]))
        return join_columns(columns)


class SeenFrame(Frame):
    """The same tick: metrics are the frame's own, names are those that the scope is shown.

    Units and workloads are encoded once for all scopes, as somebody sees them who knows nobody.
    What a scope sees under its real names follows in a small part of its own, to be put in the
    place of the masked rows.
    """

    __slots__ = ("_masked", "_record_mask", "_whole")

    _whole: Frame
    _record_mask: RecordMask
    _masked: _MaskedWorkloads

    def __init__(self, whole: Frame, mask: RecordMask) -> None:
        put = object.__setattr__
        put(self, "_whole", whole)
        put(self, "_record_mask", mask)
        masked = whole.note(
            ("masked", mask.pseudonyms),
            lambda: _MaskedWorkloads(whole, mask.pseudonyms),
        )
        put(self, "_masked", masked)
        super().__init__(
            cluster=whole.cluster,
            seq=whole.seq,
            time_ms=whole.time_ms,
            units=_show_units(whole, self._show_id),
            workloads=_ShownWorkloads(self._show_all),
            queue=(),
            columns=whole.columns,
            before=whole.before,
            changes=self._show_changes(),
            sources=whole.note("sources", lambda: [_withhold(one) for one in whole.sources]),
            speed=whole.speed,
        )

    def positions(self) -> Mapping[str, int]:
        """Return those who wait and are shown, by their place among all."""
        places = self._whole.positions()
        shown = ((self._show_id(name), place) for name, place in places.items())
        return {name: place for name, place in shown if name is not None}

    def get_part(self, name: str, form: str) -> Part:
        """Return a piece of a message: metrics as everybody gets them, tables in which nobody is
        named.
        """
        if name not in _TABLES:
            return self._whole.get_part(name, form)
        key = ("part", name, form, self._record_mask.scope.hides, self._record_mask.pseudonyms)
        return self._whole.note(key, lambda: self._encode_masked(name, form))

    def _encode_masked(self, name: str, form: str) -> Part:
        whole, hides = self._whole, self._record_mask.scope.hides
        if name == "workloads":
            listed = () if hides else _list_reported(whole, form)
            return table_part(name, self._masked.build_table(listed))
        show = _show_nothing if hides else self._masked.get_id
        units = _show_units(whole, show)
        rows = None if form == "full" else whole.changes.units
        return table_part(name, units.table(rows).drop(["uuid"]))

    def _list_changed_tables(self) -> list[str]:
        reported = super()._list_changed_tables()
        return ["units"] if self._record_mask.scope.hides and "units" in reported else reported

    def _find_own_parts(self, form: str) -> list[Part]:
        about = self._find_reported("workloads", form), self._find_reported("units", form)
        if not any(about):
            return []
        key = ("own", form, self._record_mask.scope.hides, *about)
        return [self._whole.note(key, lambda: json_part("own", self._tell_own(form, *about)))]

    def _tell_own(
        self, form: str, workloads: Sequence[str], holders: Sequence[str]
    ) -> dict[str, Any]:
        """Return what is put in the place of masked rows: ``at`` are theirs among the workloads."""
        whole = self._whole
        rows = whole.note(("held", form), lambda: _find_held_rows(whole, form))
        held = {row: self.units.workloads[row] for name in holders for row in rows.get(name, ())}
        places = whole.note(("places", form), lambda: _number(_list_reported(whole, form)))
        return {
            "at": [] if self._record_mask.scope.hides else [places[name] for name in workloads],
            "workloads": list_columns([whole.workloads[n] for n in workloads], whole.positions()),
            "holders": held,
        }

    def _find_reported(self, name: str, form: str) -> tuple[str, ...]:
        """Return which of the workloads that a part tells of are shown under their real names."""
        whole = self._whole
        if form == "full":
            about = whole.note("all", lambda: _group_by_owner(whole.workloads.values()))
        elif name == "workloads":
            about = self._group_changed()
        else:
            about = whole.note("holders", lambda: _group_by_owner(_list_holders(whole)))
        return about.find_known(self._record_mask.scope)

    def _group_changed(self) -> _ByOwner:
        whole = self._whole
        return whole.note(
            "changed",
            lambda: _group_by_owner(whole.workloads[name] for name in whole.changes.workloads),
        )

    def _show_changes(self) -> Changes:
        changes = self._whole.changes
        known = self._group_changed().find_known(self._record_mask.scope)
        about = self._whole.note("gone", lambda: _group_by_owner(changes.gone.values()))
        return Changes(
            units=changes.units,
            removed_units=changes.removed_units,
            workloads=self._show_ids("changed", changes.workloads, known),
            removed_workloads=self._show_ids(
                "gone", tuple(changes.gone), about.find_known(self._record_mask.scope)
            ),
        )

    def _show_ids(
        self, subject: str, names: Sequence[str], known: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the shown ids; mostly the same tuple for all scopes."""
        if self._record_mask.scope.hides:
            return known
        key = ("ids", subject, self._record_mask.pseudonyms)
        masked: tuple[str, ...] = self._whole.note(key, lambda: self._masked.list_ids(names))
        if not known:
            return masked
        places = self._whole.note(("places", subject), lambda: _number(names))
        shown = list(masked)
        for name in known:
            shown[places[name]] = name
        return tuple(shown)

    def _show_all(self) -> dict[str, LiveWorkload]:
        whole = self._whole
        known = self._find_reported("workloads", "full")
        if self._record_mask.scope.hides:
            return {name: whole.workloads[name] for name in known}
        own = frozenset(known)
        shown = (
            live if name in own else self._masked.get(name)
            for name, live in whole.workloads.items()
        )
        return {live.workload.workload: live for live in shown}

    def _show_id(self, workload: str) -> str | None:
        live = self._whole.workloads.get(workload)
        if live is not None and self._record_mask.knows(live.workload.user, live.workload.project):
            return workload
        # Something may hold a GPU before anybody has said whose it is.
        return None if self._record_mask.scope.hides else self._masked.get_id(workload)


def _show_units(whole: Frame, show: Callable[[str], str | None]) -> Units:
    """Return the units with their holders and reasons as somebody is shown them."""
    units = whole.units
    held = _ShownHolders(units.workloads, show)
    return Units(units.still, units.state, _show_reasons(whole), held)


def _show_reasons(whole: Frame) -> Sequence[str]:
    reasons = whole.units.reason
    return whole.note(
        "reasons", lambda: tuple(map(show_machine_text, reasons)) if any(reasons) else reasons
    )


def _show_nothing(_: str) -> None:
    return None


def _list_reported(frame: Frame, form: str) -> Iterable[str]:
    """Return the workloads of a part, in its order."""
    return frame.workloads if form == "full" else frame.changes.workloads


def _number(names: Iterable[str]) -> dict[str, int]:
    return {name: at for at, name in enumerate(names)}


def _find_held_rows(frame: Frame, form: str) -> Mapping[str, Sequence[int]]:
    """Return which rows that a part tells of each workload holds."""
    rows: Iterable[int] = frame.units.still.column("row").to_pylist()
    if form != "full":
        rows = set(rows).intersection(frame.changes.units.tolist())
    found: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        for name in frame.units.workloads[row]:
            found[name].append(row)
    return found


def _list_holders(frame: Frame) -> Iterator[LiveWorkload]:
    """Yield the workloads that hold one of the GPUs that changed."""
    held = frame.units.workloads
    names = {name for row in frame.changes.units.tolist() for name in held[row]}
    return (frame.workloads[name] for name in names if name in frame.workloads)


def _show_live(live: LiveWorkload, mask: RecordMask) -> LiveWorkload | None:
    shown = mask.show_workload(live.workload)
    if shown is None or shown is live.workload:
        return None if shown is None else live
    return _mask_live(live, mask)


def _mask_live(live: LiveWorkload, mask: RecordMask) -> LiveWorkload:
    masked = mask.mask_workload(live.workload)
    return LiveWorkload(masked, _show_status(live, masked.workload, mask))


def _show_status(live: LiveWorkload, name: str, mask: RecordMask) -> WorkloadStatus:
    return replace(live.status, workload=name, reason=mask.show_reason(live.status.reason))


def _withhold(source: SourceHeader) -> SourceHeader:
    return {**source, "error": WITHHELD} if source.get("error") else source


def anonymise_frame(frame: Frame, mask: RecordMask) -> Frame:
    """Return the frame for sums and simulations: what is not shown is there without any name."""
    if mask.scope.is_open:
        return frame
    return frame.note(("anonymous", mask.scope), lambda: _anonymise(frame, mask))


def _anonymise(frame: Frame, mask: RecordMask) -> Frame:
    shown: dict[str, LiveWorkload] = {}
    for live in frame.workloads.values():
        number = len(shown)
        known = _show_live(live, mask)
        shown[live.workload.workload] = known or _strip_names(live, f"{OTHERS}-{number}", mask)
    names = {real: live.workload.workload for real, live in shown.items()}
    units = _show_units(frame, lambda name: names.get(name, OTHERS))
    return replace(
        frame,
        units=units,
        workloads={live.workload.workload: live for live in shown.values()},
        queue=tuple(names[name] for name in frame.queue),
        changes=Changes(frame.changes.units),
        _parts={},
        notes={},
    )


def _strip_names(live: LiveWorkload, name: str, mask: RecordMask) -> LiveWorkload:
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
    return LiveWorkload(workload, _show_status(live, name, mask))
