"""Which group, how much, with whom: the communication columns of a Kineto trace."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.readers.columns_in_progress import Work
from marey.trace.readers.json.raw_columns import Sparse
from marey.trace.readers.kernel_names import collective_name, communication_kind, dtype_bytes
from marey.trace.readers.kineto.links import rows_by_key
from marey.trace.readers.thread_nesting import innermost

Rows = npt.NDArray[np.int64]
_COLUMNS = ("group", "sequence", "comms_id", "bytes", "dtype", "peer", "tag", "collective")
# Arguments that make a row worth a place among the communication columns.
_TELLING = (
    "Process Group ID",
    "Process Group Name",
    "dtype",
    "Seq",
    "Comms Id",
    "Collective name",
    "Src Rank",
    "Dst Rank",
    "In msg nelems",
    "Out msg nelems",
    "bytes",
    "Input Dims",
)
_MOST_ELEMENTS = 2**58


class CommunicationColumns:
    """The communication columns of the rows that have any: few, so they are kept apart."""

    def __init__(self, work: Work) -> None:
        self.work = work
        talking = work.kinds(EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV)
        talking |= work.names_where(_is_call)
        for key in _TELLING:
            if sparse := work.args.get(key):
                talking[sparse.rows] = True
        self.rows: Rows = np.flatnonzero(talking)
        self.columns = {name: np.full(len(self.rows), NO_VALUE, np.int64) for name in _COLUMNS}

    def at(self, rows: npt.NDArray[Any]) -> Rows:
        """Return the places of these rows, which must be among those kept."""
        return np.searchsorted(self.rows, rows)

    def put_texts(self, name: str, key: str) -> None:
        """Fill a column with the codes of a text argument."""
        if sparse := self.work.args.get(key):
            codes, inverse = np.unique(sparse.values, return_inverse=True)
            own = self.work.symbols.add_all([self.work.raw.texts[c] for c in codes])
            self.columns[name][self.at(sparse.rows)] = own[inverse]


def fill_communication(work: Work) -> None:
    """Fill the columns from an event's own arguments, then from the call that started it."""
    talk = CommunicationColumns(work)
    if not len(talk.rows):
        return
    for step in (_name, _from_process_group, _sizes, _from_shapes, _peers, _inherit, _only_group):
        step(talk)
    for name, values in talk.columns.items():
        there = values != NO_VALUE
        if there.any():
            work.sparse[name] = Sparse(talk.rows[there], values[there])


def _name(talk: CommunicationColumns) -> None:
    """Name the collective: as stated, else as the name of the kernel or the call says."""
    work, column = talk.work, talk.columns["collective"]
    transfers = work.kinds(EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV)[talk.rows]
    calls = work.names_where(_is_c10d)[talk.rows]
    for place in np.flatnonzero(transfers | calls).tolist():
        if name := collective_name(work.raw.texts[work.name[talk.rows[place]]]):
            column[place] = work.symbols.add(name)
    stated = work.args.get("Collective name")
    if stated is None:
        return
    codes, inverse = np.unique(stated.values, return_inverse=True)
    names = [collective_name(work.raw.texts[c]) for c in codes]
    kinds = np.array([communication_kind(n) for n in names], np.int8)[inverse]
    known = np.array([bool(n) for n in names])[inverse]
    own = work.symbols.add_all(names)[inverse]
    column[talk.at(stated.rows[known])] = own[known]
    # A send runs a SendRecv kernel: what is stated decides.
    kernel = known & transfers[talk.at(stated.rows)]
    work.kind[stated.rows[kernel]] = kinds[kernel]


def _from_process_group(talk: CommunicationColumns) -> None:
    """Group, dtype, sequence and id that NCCL events carry themselves."""
    args, columns = talk.work.args, talk.columns
    # The name replaced the id in 2024; the later one wins where both are there.
    talk.put_texts("group", "Process Group ID")
    talk.put_texts("group", "Process Group Name")
    talk.put_texts("dtype", "dtype")
    if sparse := args.get("Seq"):
        columns["sequence"][talk.at(sparse.rows)] = sparse.values
    if sparse := args.get("Comms Id"):
        ids = [_comms_id(talk.work.raw.texts[c]) for c in sparse.values]
        columns["comms_id"][talk.at(sparse.rows)] = ids


def _comms_id(text: str) -> int:
    """Return a communication's id as a signed number.

    One that is text, or too large, by its digest.
    """
    if text.isdecimal() and len(text) < 20 and int(text) < 2**63:
        return int(text)
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _sizes(talk: CommunicationColumns) -> None:
    """Compute bytes = elements × size of the dtype; the output's elements for a receive."""
    args, size = talk.work.args, talk.columns["bytes"]
    width = np.array([dtype_bytes(t) for t in talk.work.symbols.texts()] + [0], np.int64)
    for key in ("Out msg nelems", "In msg nelems"):
        if sparse := args.get(key):
            places, count = talk.at(sparse.rows), sparse.values.astype(np.int64)
            each = width[talk.columns["dtype"][places]]
            good = (each > 0) & (count > 0) & (count < _MOST_ELEMENTS)
            size[places[good]] = count[good] * each[good]
    if sparse := args.get("bytes"):
        size[talk.at(sparse.rows)] = sparse.values


def _from_shapes(talk: CommunicationColumns) -> None:
    """Compute sizes from recorded input shapes where there is nothing better (gloo)."""
    work, size, dtype = talk.work, talk.columns["bytes"], talk.columns["dtype"]
    types = work.row_values("Input type")
    elements = cache(lambda code: _elements(_json(work.raw.texts[code])))
    first_type = cache(lambda code: _first_dtype(_json(work.raw.texts[code])))
    for row, code in work.row_values("Input Dims").items():
        place = int(talk.at(np.array([row]))[0])
        name = first_type(types[row]) if row in types else ""
        each, count = dtype_bytes(name), elements(code)
        if each and size[place] < 0 and 0 <= count < _MOST_ELEMENTS:
            size[place] = count * each
            dtype[place] = work.symbols.add(name)


def _peers(talk: CommunicationColumns) -> None:
    """Find the other side of a point-to-point transfer, and its tag where the call was recorded."""
    work, columns = talk.work, talk.columns
    send, recv = work.symbols.code("send"), work.symbols.code("recv")
    for key, is_send in (("Src Rank", False), ("Dst Rank", True)):
        if sparse := work.args.get(key):
            places = talk.at(sparse.rows)
            mine = (columns["collective"][places] == (-2 if send is None else send)) == is_send
            good = mine & (sparse.values >= 0) & (sparse.values < 2**31)
            columns["peer"][places[good]] = sparse.values[good]
    # c10d::send(tensors, group, destination, tag) and c10d::recv_(tensors, group, source, tag)
    for row, code in work.row_values("Concrete Inputs").items():
        place = int(talk.at(np.array([row]))[0])
        known = place < len(talk.rows) and talk.rows[place] == row
        if known and columns["collective"][place] in (send, recv) and _is_c10d(work.name_of(row)):
            values = _json(work.raw.texts[code])
            if isinstance(values, list) and len(values) >= 4:
                columns["peer"][place], columns["tag"][place] = _small(values[2]), _small(values[3])


def _inherit(talk: CommunicationColumns) -> None:
    """Give a transfer what its ``record_param_comms`` (or c10d call) says, and the
    call in return.
    """
    work = talk.work
    rows = np.flatnonzero(work.kinds(EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV))
    call = _calls(work, rows)
    mine, theirs = talk.at(rows[call >= 0]), talk.at(call[call >= 0])
    if not work.info.has_device:
        # gloo's own name for what it does says less than the call that asked for it.
        asked = talk.columns["collective"][theirs]
        talk.columns["collective"][mine[asked >= 0]] = asked[asked >= 0]
    for column in talk.columns.values():
        take = (column[mine] == NO_VALUE) & (column[theirs] != NO_VALUE)
        column[mine[take]] = column[theirs[take]]
        give = (column[theirs] == NO_VALUE) & (column[mine] != NO_VALUE)
        column[theirs[give]] = column[mine[give]]


def _calls(work: Work, rows: Rows) -> Rows:
    """Return the call behind each transfer: around its launch, or of the same External id."""
    recorded = np.flatnonzero(work.names_where(lambda n: n == "record_param_comms"))
    launch = work.columns["launch"][rows].astype(np.int64)
    if not len(recorded):
        return launch if not work.info.has_device else np.full(len(rows), -1, np.int64)
    found = np.full(len(rows), -1, np.int64)
    if external := work.args.get("External id"):
        ids = np.full(work.size, NO_VALUE, np.int64)
        ids[external.rows] = external.values
        asked = np.where(ids[rows] == NO_VALUE, NO_VALUE - 1, ids[rows])
        found = rows_by_key(ids[recorded], recorded, asked)
    host = np.maximum(launch, 0)
    start = work.start_ns[recorded]
    owners = (work.lane[recorded], start, start + work.dur_ns[recorded])
    around = innermost(owners, work.lane[host], work.start_ns[host])
    nested = np.where((around >= 0) & (launch >= 0), recorded[np.maximum(around, 0)], -1)
    # The call around the launch is certain; equal External ids may be a coincidence of numbering.
    return np.where(nested >= 0, nested, found)


def _only_group(talk: CommunicationColumns) -> None:
    """Give a transfer without a name the only process group where there is one."""
    work, group = talk.work, talk.columns["group"]
    if len(work.info.groups) != 1:
        return
    talking = work.kinds(EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV)
    talking |= work.names_where(_is_call)
    unnamed = talking[talk.rows] & (group == NO_VALUE)
    if unnamed.any():
        group[unnamed] = work.symbols.add(next(iter(work.info.groups)))


def _is_c10d(name: str) -> bool:
    return name.startswith("c10d::")


def _is_call(name: str) -> bool:
    return name == "record_param_comms" or _is_c10d(name)


def _small(value: Any) -> int:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 10 else NO_VALUE


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _elements(dims: Any) -> int:
    """Return elements of the first input, one tensor or a list of them.

    -1 if that is not what it is.
    """
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


def link_gloo(work: Work) -> None:
    """Link gloo's executions to the c10d calls that queued them, the n-th to the n-th.

    Neither carries an id. Executions of calls before the window come first, so the two sequences
    are laid together at their ends; an execution never starts before its call.
    """
    if work.info.has_device:
        return
    runs = np.flatnonzero(work.kinds(EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV))
    calls = np.flatnonzero(work.names_where(_is_c10d))
    if not len(runs) or not len(calls):
        return
    of_run = np.array([_gloo_class(work.name_of(row)) for row in runs.tolist()])
    of_call = np.array([_gloo_class(work.name_of(row)) for row in calls.tolist()])
    for name in np.unique(of_run):
        mine, theirs = runs[of_run == name], calls[of_call == name]
        count = min(len(mine), len(theirs))
        mine, theirs = mine[len(mine) - count :], theirs[len(theirs) - count :]
        good = work.start_ns[mine] >= work.start_ns[theirs]
        work.columns["launch"][mine[good]] = theirs[good]


def _gloo_class(name: str) -> str:
    """Give a reduce-scatter the class of an all-reduce, as which gloo carries it out."""
    collective = collective_name(name)
    return "allreduce" if collective == "reducescatter" else collective
