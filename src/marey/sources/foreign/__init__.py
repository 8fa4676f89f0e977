"""Logs and tables that other programs write, read as history."""
