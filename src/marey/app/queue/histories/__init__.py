"""Readers of recorded jobs for policy replays: Slurm's own listings and public traces."""
