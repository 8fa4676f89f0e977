"""Whose work an operator is: its path of modules, its phase of the step, and its shapes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.readers.columns_in_progress import Work
from marey.trace.readers.json.raw_columns import JSON_ARGS, SHAPED_PREFIXES, Sparse
from marey.trace.readers.kineto.steps_and_modules import follow_launch, is_step, rows_around

Rows = npt.NDArray[np.int64]
FORWARD, BACKWARD, UPDATE = 0, 1, 2
_MODULE = "nn.Module: "
_ENGINE = "autograd::engine::evaluate_function"
_OPTIMIZER = re.compile(r"^Optimizer\.|(?:^|[^a-z])optimi[sz]er|^optim(?:[._ ]|$)", re.IGNORECASE)
# A path is made of at most this many modules: a recursion in a trace must not make a long name.
DEEPEST_PATH = 24


def keep_shapes(work: Work) -> None:
    """Keep every operator's shapes and record-function id; leave to communications what is
    theirs.
    """
    if ids := work.args.get("Record function id"):
        work.sparse["record_id"] = ids
    dims = work.args.get("Input Dims")
    if dims is None:
        return
    codes, inverse = np.unique(dims.values, return_inverse=True)
    own = work.symbols.add_all([work.raw.texts[code] for code in codes])
    work.sparse["shapes"] = Sparse(dims.rows, own[inverse].astype(np.int64))
    talks = work.names_where(lambda name: name.startswith(SHAPED_PREFIXES))
    for key in JSON_ARGS:
        if sparse := work.args.pop(key, None):
            kept = talks[sparse.rows]
            if kept.any():
                work.args[key] = Sparse(sparse.rows[kept], sparse.values[kept])


def name_phases(work: Work) -> None:
    """Forward, backward or update: by the engine's and the optimizer's own marks, where there are
    any.
    """
    engine = work.names_where(lambda name: name.startswith(_ENGINE))
    backward = np.flatnonzero(engine | (work.columns["forward"] >= 0))
    marks = work.kinds(EventKind.ANNOTATION) & work.names_where(_is_optimizer)
    update = np.flatnonzero(marks & (work.columns["device"] < 0))
    if not len(backward) and not len(update):
        return
    phase = work.column("phase", np.int8)
    if len(backward):
        # Without any mark of the backward pass nothing says that the rest is forward.
        phase[(work.columns["device"] < 0) & (work.columns["step"] >= 0)] = FORWARD
        phase[rows_around(work, backward) >= 0] = BACKWARD
    if len(update):
        phase[rows_around(work, update) >= 0] = UPDATE
    follow_launch(work, phase)
    # Run-loop threads have no marks of their own: what they carry out is as their call.
    strangers = work.kinds(EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV)
    phase[strangers & (work.columns["launch"] < 0)] = NO_VALUE


def _is_optimizer(name: str) -> bool:
    return _OPTIMIZER.search(name) is not None


def name_module_paths(work: Work) -> None:
    """Set the path of modules around every event; backward as forward, others by surroundings.

    A backward wrapper of the engine holds the operator that knows its forward; a gradient that is
    accumulated belongs to the module whose backward made it. What lies in no module is named by the
    innermost annotation around it, in brackets.
    """
    path = work.column("module_path")
    rows = np.flatnonzero(work.names_where(lambda name: name.startswith(_MODULE)))
    if len(rows):
        own = work.symbols.add_all(_paths(work, rows))
        found = rows_around(work, rows)
        path[found >= 0] = own[found[found >= 0]]
    elif "module" in work.columns:
        path[:] = work.columns["module"]
    _follow_forward(work, path)
    _name_by_annotation(work, path)
    follow_launch(work, path)


def _paths(work: Work, rows: Rows) -> list[str]:
    """Return the modules around each module, outermost first, joined by dots."""
    names = [work.name_of(row)[len(_MODULE) :] for row in rows.tolist()]
    end = work.start_ns[rows] + work.dur_ns[rows]
    paths: list[str] = []
    stacks: dict[int, list[int]] = {}
    for place, (lane, start) in enumerate(
        zip(work.lane[rows].tolist(), work.start_ns[rows].tolist(), strict=True)
    ):
        stack = stacks.setdefault(lane, [])
        while stack and end[stack[-1]] <= start:
            stack.pop()
        stack.append(place)
        paths.append(".".join(names[p] for p in stack[:DEEPEST_PATH]))
    return paths


def _follow_forward(work: Work, path: npt.NDArray[Any]) -> None:
    forward = work.columns["forward"]
    linked = np.flatnonzero(forward >= 0)
    if not len(linked):
        return
    inner = rows_around(work, linked)
    taken = np.flatnonzero((inner >= 0) & (path < 0))
    path[taken] = path[forward[linked[inner[taken]]]]
    wrappers = np.flatnonzero(work.names_where(lambda name: name.startswith(_ENGINE)))
    if not len(wrappers):
        return
    # The wrapper takes the path of the first linked operator inside it.
    outer = rows_around(work, wrappers)[linked]
    inside = np.flatnonzero(outer >= 0)
    of_wrapper = np.full(len(wrappers), NO_VALUE, np.int64)
    of_wrapper[outer[inside][::-1]] = path[forward[linked[inside]]][::-1]
    _carry_on(work, wrappers, of_wrapper)
    around = rows_around(work, wrappers)
    taken = np.flatnonzero((around >= 0) & (path < 0))
    path[taken] = of_wrapper[around[taken]]


def _carry_on(work: Work, wrappers: Rows, of_wrapper: Rows) -> None:
    """Give wrappers without a forward of their own to the one before on their thread and step."""
    last: dict[tuple[int, int], int] = {}
    steps = work.columns["step"]
    for place, row in enumerate(wrappers.tolist()):
        key = (int(work.lane[row]), int(steps[row]))
        if of_wrapper[place] >= 0:
            last[key] = int(of_wrapper[place])
        else:
            of_wrapper[place] = last.get(key, NO_VALUE)


def _name_by_annotation(work: Work, path: npt.NDArray[Any]) -> None:
    marks = work.kinds(EventKind.ANNOTATION) & (work.columns["device"] < 0)
    rows = np.flatnonzero(marks & ~work.names_where(is_step))
    if not len(rows):
        return
    codes, inverse = np.unique(work.name[rows], return_inverse=True)
    own = work.symbols.add_all([f"({work.raw.texts[code]})" for code in codes])[inverse]
    found = rows_around(work, rows)
    taken = np.flatnonzero((found >= 0) & (path < 0))
    path[taken] = own[found[taken]]
