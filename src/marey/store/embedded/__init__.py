"""The embedded store: samples and records in one DuckDB file, documents and maintenance."""
