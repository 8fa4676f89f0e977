"""How fast a workload will run: predicted from what was measured of others on the same system."""
