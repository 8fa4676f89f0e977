"""A journal before the store: ticks kept at once in a file and written in groups."""
