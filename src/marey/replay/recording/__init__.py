"""What a recording says for a replay: blocks of work, link costs, delays, the workload."""
