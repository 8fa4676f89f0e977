"""Answers from the store and the live tables: workspace, selection, search, server client."""
