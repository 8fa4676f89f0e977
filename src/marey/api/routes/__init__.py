"""One module per subject of the API, each a router over ``app``."""
