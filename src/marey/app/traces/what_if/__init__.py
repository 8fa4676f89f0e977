"""Replays of runs by their ids: what-ifs, searches, predictions that are kept and scored."""
