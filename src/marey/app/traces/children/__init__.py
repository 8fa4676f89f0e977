"""Work on files that people sent, in processes of their own with limits."""
