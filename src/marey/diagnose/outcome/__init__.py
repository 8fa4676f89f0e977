"""How a workload ended, or why it does not run: verdicts that need no samples."""
