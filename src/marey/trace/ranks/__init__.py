"""Ranks together: communications, matched collectives, clocks, parallelism, pipelines."""
