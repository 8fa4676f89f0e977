"""Marey: the motion of GPU clusters made visible."""
