"""The vocabulary of access: who is asking, roles, permissions, privacy."""
