"""A profiled run as files and tables: finding, converting, caching and opening it."""
