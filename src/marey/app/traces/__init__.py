"""Training runs in a service: from opened traces to the analyses that read them."""
