"""Profiler traces to verdicts: readers, runs, one rank, all ranks, graph, report, views."""
