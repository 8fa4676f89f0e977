"""The waiting line: who is ahead, when it starts, what is free, what a policy would do."""
