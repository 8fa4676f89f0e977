"""The JSON form of tables as types, made from their Arrow schemas: no column is written twice."""

from __future__ import annotations

from types import GenericAlias, NoneType
from typing import Any

import msgspec
import pyarrow as pa

from marey.live.cluster_table import ClusterTable
from marey.live.frames import WORKLOADS_SCHEMA
from marey.live.summary import SCHEMA as SUMMARY
from marey.model.answers import HISTOGRAMS, SERIES, STATISTICS
from marey.model.tables import ALLOCATIONS, EVENTS, PROGRESS, STATES, WORKLOADS

Fields = list[tuple[str, Any]]


def row_type(name: str, schema: pa.Schema, *, known: str = "", **more: Any) -> Any:
    """Return the type of one row: a field per column, null allowed except in ``known`` ones."""
    never_null = set(known.split())
    fields: Fields = [(entry.name, _json_type(entry, never_null)) for entry in schema]
    return _document_type(name, [*fields, *more.items()])


def table_type(name: str, row: Any, **facts: Any) -> Any:
    """Return the type of a table's document: its rows, and facts about the whole of it."""
    return _document_type(name, [("rows", list_of(row)), *facts.items()])


def list_of(row: Any) -> Any:
    """Return the type of a list of such rows."""
    return GenericAlias(list, (row,))


def _document_type(name: str, fields: Fields) -> Any:
    return msgspec.defstruct(name, fields, module=__name__, frozen=True)


def _json_type(entry: pa.Field, never_null: set[str]) -> Any:
    if entry.name == "attributes":
        return dict[str, str]
    kind = _value_type(entry.type)
    return kind if entry.name in never_null else kind | NoneType


def _value_type(kind: pa.DataType) -> Any:
    if pa.types.is_dictionary(kind):
        return _value_type(kind.value_type)
    if pa.types.is_list(kind):
        return list_of(_value_type(kind.value_type) | NoneType)
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_floating(kind):
        return float
    return bool if pa.types.is_boolean(kind) else str


WORKLOAD_ROW = row_type("WorkloadRow", WORKLOADS, known="cluster workload")
STATE_ROW = row_type("StateRow", STATES, known="cluster workload valid_from_ms")
ALLOCATION_ROW = row_type("AllocationRow", ALLOCATIONS, known="cluster workload gpu valid_from_ms")
UNIT_ROW = row_type(
    "UnitRow", ClusterTable("").frame(0).units.table().schema, known="row cluster gpu host state"
)
LIVE_WORKLOAD_ROW = row_type("LiveWorkloadRow", WORKLOADS_SCHEMA, known="id state")
SUMMARY_ROW = row_type(
    "SummaryRow",
    SUMMARY,
    known="time_ms gpus allocated idle broken running waiting waiting_gpus",
)
PROGRESS_ROW = row_type("ProgressRow", PROGRESS, known="cluster workload time_ms")
EVENT_ROW = row_type("EventRow", EVENTS, known="cluster time_ms kind")
SERIES_ROW = row_type("SeriesRow", SERIES, known="entity metric time_ms")
HISTOGRAM_ROW = row_type("HistogramRow", HISTOGRAMS, known="entity metric low high counts missing")
STATISTIC_ROW = row_type("StatisticRow", STATISTICS, known="entity metric count")

SUMMARY_TABLE = table_type("SummaryTable", SUMMARY_ROW)
WORKLOAD_TABLE = table_type("WorkloadTable", WORKLOAD_ROW, next=str | None)
PROGRESS_TABLE = table_type("ProgressTable", PROGRESS_ROW)
EVENT_TABLE = table_type("EventTable", EVENT_ROW)
SERIES_TABLE = table_type("SeriesTable", SERIES_ROW, approximate=bool)
HISTOGRAM_TABLE = table_type("HistogramTable", HISTOGRAM_ROW, approximate=bool)
STATISTIC_TABLE = table_type(
    "StatisticTable", STATISTIC_ROW, approximate=bool, quantiles=list[float]
)
# One workload with its validity intervals.
WORKLOAD_RECORD = row_type(
    "WorkloadRecord",
    WORKLOADS,
    known="cluster workload",
    states=list_of(STATE_ROW),
    allocations=list_of(ALLOCATION_ROW),
)
# A moment of the cluster; its units have one more column for each metric that was asked for.
CLUSTER_MOMENT = _document_type(
    "ClusterMoment",
    [
        ("cluster", str),
        ("time_ms", int),
        ("seq", int),
        ("units", list_of(UNIT_ROW)),
        ("workloads", list_of(LIVE_WORKLOAD_ROW)),
    ],
)
