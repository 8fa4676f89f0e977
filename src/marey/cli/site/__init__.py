"""Commands that set up and run a site: demo, serve, init, doctor, import, simulate."""
