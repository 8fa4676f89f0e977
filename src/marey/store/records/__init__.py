"""Records with validity intervals: facts, progress and events, written and read."""
