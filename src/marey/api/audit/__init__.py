"""Recording what is changed, refused and signed in to, whichever route it is."""
