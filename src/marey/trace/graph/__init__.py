"""The run as a graph of costs: dependencies, slowdown, critical path, op tables."""
