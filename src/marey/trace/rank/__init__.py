"""One rank alone: activity, breakdown, steps, launches, memory, operators and their path."""
