"""What each word of a what-if does to a run."""
