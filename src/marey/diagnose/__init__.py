"""One workload's GPUs: clusters, outliers, timeline and judges, from tables to verdicts."""
