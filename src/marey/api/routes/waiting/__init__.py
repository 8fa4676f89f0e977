"""Routes about the waiting line."""
