"""Bringing the past in: imports, backfill from accounting, uploads, background jobs."""
