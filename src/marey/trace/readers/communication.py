"""Which group, how much, with whom: the communication columns of a Kineto trace."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from marey.model.traces import NO_VALUE, EventKind
from marey.trace.kernels import collective_name, communication_kind, dtype_bytes
from marey.trace.readers.links import rows_by_key
from marey.trace.readers.nesting import innermost
from marey.trace.readers.raw import Sparse
from marey.trace.readers.work import Work

Rows = npt.NDArray[np.int64]
_COLUMNS = ("group", "sequence", "comms_id", "bytes", "dtype", "peer", "tag", "collective")
_WIDE = frozenset({"sequence", "comms_id", "bytes"})
_MOST_ELEMENTS = 2**62


def fill_communication(work: Work) -> None:
    """Fill the columns from an event's own arguments, then from the call that started it."""
    _from_process_group(work)
    _from_shapes(work)
    _inherit_from_call(work)
    _only_group(work)


def _column(work: Work, name: str) -> npt.NDArray[Any]:
    return work.column(name, np.int64 if name in _WIDE else np.int32)


def _from_process_group(work: Work) -> None:
    """Arguments that NCCL events carry themselves."""
    args = work.args
    # The name replaced the id in 2024; the later one wins where both are there.
    for key in ("Process Group ID", "Process Group Name"):
        _put_texts(work, "group", args.get(key))
    _put_texts(work, "dtype", args.get("dtype"))
    if sparse := args.get("Seq"):
        _column(work, "sequence")[sparse.rows] = sparse.values
    if sparse := args.get("Comms Id"):
        ids = {int(c): _comms_id(work.raw.texts[c]) for c in np.unique(sparse.values)}
        _column(work, "comms_id")[sparse.rows] = [ids[int(c)] for c in sparse.values]
    if sparse := args.get("Collective name"):
        _name_collectives(work, sparse)
    _peers(work)
    _sizes(work)


def _put_texts(work: Work, name: str, sparse: Sparse | None) -> None:
    if sparse is None:
        return
    codes, inverse = np.unique(sparse.values, return_inverse=True)
    own = work.symbols.add_all([work.raw.texts[c] for c in codes])
    _column(work, name)[sparse.rows] = own[inverse]


def _comms_id(text: str) -> int:
    """A communication's id as a signed number; one that is text, or too large, by its digest."""
    if text.isdecimal() and int(text) < 2**63:
        return int(text)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _name_collectives(work: Work, sparse: Sparse) -> None:
    """The stated collective decides over the kernel's name: a send runs a SendRecv kernel."""
    codes, inverse = np.unique(sparse.values, return_inverse=True)
    names = [collective_name(work.raw.texts[c]) for c in codes]
    kinds = np.array([communication_kind(n) for n in names], np.int8)[inverse]
    known = np.array([bool(n) for n in names])[inverse]
    own = work.symbols.add_all(names)[inverse]
    _column(work, "collective")[sparse.rows[known]] = own[known]
    kernel = known & work.on_device[sparse.rows] & (work.kind[sparse.rows] != EventKind.COMPUTE)
    work.kind[sparse.rows[kernel]] = kinds[kernel]


def _peers(work: Work) -> None:
    """The other side of a point-to-point transfer: the destination of a send, else the source."""
    collective = _column(work, "collective")
    send = work.symbols.code("send")
    for key, is_send in (("Src Rank", False), ("Dst Rank", True)):
        sparse = work.args.get(key)
        if sparse is not None:
            rows = sparse.rows
            mine = (collective[rows] == (NO_VALUE if send is None else send)) == is_send
            good = mine & (sparse.values >= 0) & (sparse.values < 2**31)
            _column(work, "peer")[rows[good]] = sparse.values[good]


def _sizes(work: Work) -> None:
    """Bytes = elements × size of the dtype; the input's elements, or the output's of a receive."""
    dtype = _column(work, "dtype")
    width = np.array([dtype_bytes(t) for t in work.symbols.texts()] + [0], np.int64)
    size = _column(work, "bytes")
    for key in ("Out msg nelems", "In msg nelems"):
        if sparse := work.args.get(key):
            rows, count = sparse.rows, sparse.values
            each = width[dtype[rows]]
            good = (each > 0) & (count > 0) & (count < _MOST_ELEMENTS // 16)
            size[rows[good]] = count[good] * each[good]
    if sparse := work.args.get("bytes"):
        size[sparse.rows] = sparse.values


def _from_shapes(work: Work) -> None:
    """Sizes from recorded input shapes where there is nothing better (gloo)."""
    dims, types = work.args.get("Input Dims"), work.args.get("Input type")
    if dims is None:
        return
    size, dtype = _column(work, "bytes"), _column(work, "dtype")
    type_of = dict(zip(types.rows.tolist(), types.values.tolist(), strict=True)) if types else {}
    shapes: dict[int, int] = {}
    dtypes: dict[int, str] = {}
    for row, code in zip(dims.rows.tolist(), dims.values.tolist(), strict=True):
        if code not in shapes:
            shapes[code] = _elements(_json(work.raw.texts[code]))
        type_code = type_of.get(row, -1)
        if type_code not in dtypes:
            dtypes[type_code] = _first_dtype(
                _json(work.raw.texts[type_code]) if type_code >= 0 else None
            )
        each = dtype_bytes(dtypes[type_code])
        if each and size[row] < 0 and 0 <= shapes[code] < _MOST_ELEMENTS // 16:
            size[row] = shapes[code] * each
            dtype[row] = work.symbols.add(dtypes[type_code])
    _from_inputs(work)


def _from_inputs(work: Work) -> None:
    """Peer and tag of c10d's send and receive, and which collective any c10d call starts."""
    inputs = work.args.get("Concrete Inputs")
    collective = _column(work, "collective")
    calls = np.flatnonzero(work.names_where(_is_c10d) & (collective < 0))
    names = {int(c): collective_name(work.raw.texts[c]) for c in np.unique(work.name[calls])}
    for row in calls.tolist():
        if name := names[int(work.name[row])]:
            collective[row] = work.symbols.add(name)
    if inputs is None:
        return
    peer, tag = _column(work, "peer"), _column(work, "tag")
    both = {work.symbols.code("send"), work.symbols.code("recv")} - {None}
    for row, code in zip(inputs.rows.tolist(), inputs.values.tolist(), strict=True):
        if int(collective[row]) in both and work.raw.texts[work.name[row]].startswith("c10d::"):
            values = _json(work.raw.texts[code])
            if isinstance(values, list) and len(values) >= 4:
                peer[row], tag[row] = _small(values[2]), _small(values[3])


def _is_c10d(name: str) -> bool:
    return name.startswith("c10d::")


def _small(value: Any) -> int:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 10 else NO_VALUE


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _elements(dims: Any) -> int:
    """Elements of the first input, one tensor or a list of them; -1 if that is not what it is."""
    first = dims[0] if isinstance(dims, list) and dims else None
    if not isinstance(first, list):
        return -1
    tensors = first if first and isinstance(first[0], list) else [first]
    total = 0
    for shape in tensors:
        count = 1
        for length in shape if isinstance(shape, list) else []:
            count = min(count * length, _MOST_ELEMENTS) if type(length) is int else 0
        total += count
    return total


def _first_dtype(types: Any) -> str:
    first = types[0] if isinstance(types, list) and types else ""
    return first if isinstance(first, str) else ""


def _inherit_from_call(work: Work) -> None:
    """A transfer takes what its ``record_param_comms`` (or c10d call) says, and gives it back."""
    rows = np.flatnonzero(work.kinds(EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV))
    if not len(rows):
        return
    call = _calls(work, rows)
    linked = call >= 0
    rows, call = rows[linked], call[linked]
    for name in _COLUMNS:
        column = _column(work, name)
        theirs = column[call]
        take = (column[rows] == NO_VALUE) & (theirs != NO_VALUE)
        column[rows[take]] = theirs[take]
        give = (theirs == NO_VALUE) & (column[rows] != NO_VALUE)
        column[call[give]] = column[rows[give]]


def _calls(work: Work, rows: Rows) -> Rows:
    """The call behind each transfer: same External id, or around the launch on its thread."""
    recorded = np.flatnonzero(work.names_where(lambda n: n == "record_param_comms"))
    launch = work.columns["launch"]
    if not len(recorded):
        return launch[rows].astype(np.int64) if not work.info.has_device else np.full(len(rows), -1)
    external = work.args.get("External id")
    found = np.full(len(rows), -1, np.int64)
    if external is not None:
        ids = np.full(work.size, NO_VALUE, np.int64)
        ids[external.rows] = external.values
        asked = np.where(ids[rows] == NO_VALUE, NO_VALUE - 1, ids[rows])
        found = rows_by_key(ids[recorded], recorded, asked)
    host = np.maximum(launch[rows], 0)
    start = work.start_ns[recorded]
    around = innermost(
        (work.lane[recorded], start, start + work.dur_ns[recorded]),
        work.lane[host],
        work.start_ns[host],
    )
    nested = np.where((around >= 0) & (launch[rows] >= 0), recorded[np.maximum(around, 0)], -1)
    # The call around the launch is certain; equal External ids may be a coincidence of numbering.
    return np.where(nested >= 0, nested, found)


def _only_group(work: Work) -> None:
    """With one process group there is no doubt which one a transfer without a name belongs to."""
    if len(work.info.groups) != 1:
        return
    talking = work.kinds(EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV) | work.names_where(
        _is_c10d
    )
    group = _column(work, "group")
    unnamed = talking & (group == NO_VALUE)
    if unnamed.any():
        group[unnamed] = work.symbols.add(next(iter(work.info.groups)))


def link_gloo(work: Work) -> None:
    """gloo's executions to the c10d calls that queued them: the n-th of a collective by its n-th.

    Neither carries an id. Executions of calls before the window come first, so the two sequences
    are laid together at their ends; an execution never starts before its call.
    """
    if work.info.has_device:
        return
    runs = np.flatnonzero(work.kinds(EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV))
    calls = np.flatnonzero(work.names_where(_is_c10d))
    if not len(runs) or not len(calls):
        return
    launch, collective = work.columns["launch"], _column(work, "collective")
    used = np.unique(work.name[np.append(runs, calls)])
    names = {int(c): collective_name(work.raw.texts[c]) for c in used}
    of_run = np.array([_gloo_class(names[int(c)]) for c in work.name[runs]])
    of_call = np.array([_gloo_class(names[int(c)]) for c in work.name[calls]])
    for name in np.unique(of_run):
        mine, theirs = runs[of_run == name], calls[of_call == name]
        count = min(len(mine), len(theirs))
        mine, theirs = mine[len(mine) - count :], theirs[len(theirs) - count :]
        good = work.start_ns[mine] >= work.start_ns[theirs]
        launch[mine[good]] = theirs[good]
        for run, call in zip(mine[good].tolist(), theirs[good].tolist(), strict=True):
            collective[run] = work.symbols.add(names[int(work.name[call])])


def _gloo_class(name: str) -> str:
    """gloo carries out a reduce-scatter as an all-reduce, so the two share one sequence."""
    return "allreduce" if name == "reducescatter" else name
