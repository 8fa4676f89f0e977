"""Commands that ask about a cluster: workloads, metrics, rules, findings, diagnosis."""
