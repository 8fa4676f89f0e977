"""Evaluating rules as data arrives: allocations, verdicts, evidence, findings, state."""
