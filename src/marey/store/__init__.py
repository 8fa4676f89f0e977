"""Keep and query model tables: embedded (one DuckDB file)."""
