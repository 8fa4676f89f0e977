"""The tables that a sample store answers with."""

from __future__ import annotations

import pyarrow as pa

SERIES = pa.schema(
    {
        "entity": pa.dictionary(pa.int32(), pa.string()),
        "metric": pa.dictionary(pa.int32(), pa.string()),
        "time_ms": pa.int64(),
        "value": pa.float32(),
    }
)
HISTOGRAMS = pa.schema(
    {
        "entity": pa.string(),
        "metric": pa.string(),
        "low": pa.float64(),
        "high": pa.float64(),
        "counts": pa.list_(pa.int64()),
        "missing": pa.int64(),
    }
)
STATISTICS = pa.schema(
    {
        "entity": pa.string(),
        "metric": pa.string(),
        "count": pa.int64(),
        "min": pa.float64(),
        "max": pa.float64(),
        "mean": pa.float64(),
        "std": pa.float64(),
        "first_ms": pa.int64(),
        "last_ms": pa.int64(),
        "last": pa.float64(),
        "quantiles": pa.list_(pa.float64()),
    }
)
