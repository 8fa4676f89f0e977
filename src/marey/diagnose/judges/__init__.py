"""One judge per kind of fault: signals in, claims out. ``diagnosis`` lists them in order."""
