"""Makers: profiles of every kind → trees with values. Chosen by looking at the file."""
