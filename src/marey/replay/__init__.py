"""Replaying a run from its graph, with changes: what to change and what it would gain."""
