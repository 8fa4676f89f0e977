"""The waiting line as it is: who is ahead, what blocks a workload, what is free, who uses what."""
