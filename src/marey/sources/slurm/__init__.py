"""Slurm: its controller's nodes, partitions and jobs, in the words of every version since 22.05."""
