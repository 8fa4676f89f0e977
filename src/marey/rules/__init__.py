"""Rules over a workload's whole life: their language, their evaluation, back-tests, waste."""
