"""Faults with known truth: incidents, their effects on metrics, the life of hosts."""
