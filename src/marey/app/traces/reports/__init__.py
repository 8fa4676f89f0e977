"""Reports of runs as files to send."""
