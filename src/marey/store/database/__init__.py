"""The DuckDB file itself: opening it, its tables, names as codes, rows and facts."""
