"""The collect loop: polling, source health, opening and reloading sources."""
