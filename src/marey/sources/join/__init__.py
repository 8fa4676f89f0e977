"""Several sources brought together into one cluster: host names, holders, conflicts."""
