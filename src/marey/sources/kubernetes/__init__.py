"""Kubernetes: nodes, pods and jobs by list and watch, as hosts, GPUs and workloads."""
