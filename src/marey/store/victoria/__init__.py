"""Samples in VictoriaMetrics: one sample store over HTTP, with a spill on disk before it."""
