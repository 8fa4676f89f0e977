"""From the events of each rank to what is kept for the views: identities, bands, surfaces."""
