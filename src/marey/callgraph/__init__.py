"""Call graphs: makers → united trees, ensembles, differences, queries, exports."""
