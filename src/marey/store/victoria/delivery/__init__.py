"""Delivering samples to VictoriaMetrics: spill on disk, send queue, sender."""
