"""Fixed-bin sketches of many series at once: their values, statistics, tables and stored form."""
