"""Checking everything a server needs, one small check at a time, for ``marey doctor``."""
