"""Diagnosing a stored workload: its matrix, the parts of the answer, comparison, peers, reports."""
