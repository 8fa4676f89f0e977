"""Routes about training runs: replays, what-ifs, searches, predictions."""
