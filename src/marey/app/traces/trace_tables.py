"""The JSON form of a run's tables as types, made from their Arrow schemas."""

from __future__ import annotations

from marey.app.queries.table_documents import row_type, table_type
from marey.trace.results import CRITICAL_PATH
from marey.trace.views.making.memory_lines import MEMORY_LINES
from marey.trace.views.view_tables import (
    BANDS,
    BREAKDOWNS,
    COLLECTIVE_ITEMS,
    COMMUNICATION_NODES,
    COMMUNICATION_PAIRS,
    NAME_TIMES,
    RANK_STEPS,
    TIME_SPANS,
    VIEW_ROWS,
    WAITS,
)

_STEPS = row_type("TraceStepRow", RANK_STEPS, known=" ".join(RANK_STEPS.names))
_BREAKDOWN = row_type("TraceBreakdownRow", BREAKDOWNS, known=" ".join(BREAKDOWNS.names))
_COLLECTIVE = row_type(
    "TraceCollectiveRow",
    COLLECTIVE_ITEMS,
    known="item name group point_to_point bytes step participants expected first_arrival_ns "
    "last_arrival_ns end_ns last_rank certain skew_us transfer_us method confidence",
)
_WAIT = row_type("TraceWaitRow", WAITS, known=" ".join(WAITS.names))
_PAIR = row_type("TracePairRow", COMMUNICATION_PAIRS, known=" ".join(COMMUNICATION_PAIRS.names))
_NODE = row_type("TraceNodeRow", COMMUNICATION_NODES, known=" ".join(COMMUNICATION_NODES.names))
_MEMORY = row_type("TraceMemoryRow", MEMORY_LINES, known=" ".join(MEMORY_LINES.names))
_NAME = row_type("TraceNameRow", NAME_TIMES, known=" ".join(NAME_TIMES.names))
_PATH = row_type("TracePathRow", CRITICAL_PATH, known=" ".join(CRITICAL_PATH.names))
_ROW = row_type(
    "TraceViewRow", VIEW_ROWS, known="position rank cluster exemplar size outlier missing"
)
_BAND = row_type("TraceBandRow", BANDS, known=" ".join(BANDS.names))
_SPAN = row_type("TraceSpanRow", TIME_SPANS, known=" ".join(TIME_SPANS.names))

STEP_ROWS = table_type("TraceStepRows", _STEPS, total=int)
BREAKDOWN_ROWS = table_type("TraceBreakdownRows", _BREAKDOWN, total=int)
COLLECTIVE_ROWS = table_type("TraceCollectiveRows", _COLLECTIVE, total=int)
WAIT_ROWS = table_type("TraceWaitRows", _WAIT, total=int)
PAIR_ROWS = table_type("TracePairRows", _PAIR, total=int)
NODE_ROWS = table_type("TraceNodeRows", _NODE, total=int)
MEMORY_ROWS = table_type("TraceMemoryRows", _MEMORY, total=int)
NAME_ROWS = table_type("TraceNameRows", _NAME, total=int)
PATH_ROWS = table_type("TracePathRows", _PATH, total=int)
VIEW_ROW_TABLE = table_type(
    "TraceViewRows",
    _ROW,
    step=int,
    steps=list[int],
    step_starts_ns=list[int],
    start_ns=int,
    end_ns=int,
    clock_error_us=float,
    stages=int,
    operators=int,
    clusters=int,
    kinds=list[str],
)
BAND_ROWS = table_type("TraceBandRows", _BAND, left_out=int, step=int)
SPAN_ROWS = table_type("TraceSpanRows", _SPAN, left_out=int, step=int)
