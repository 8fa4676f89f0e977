"""Runs on devices: hosts that launch, streams in order, events, and what changes do to them."""
