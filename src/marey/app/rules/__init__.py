"""Rules in a running service: rule store, live watch, state file, findings, notifications."""
