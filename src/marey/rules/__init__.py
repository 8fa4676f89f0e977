"""Rules over a workload's whole life: their language, the engine that evaluates them, back-tests."""
