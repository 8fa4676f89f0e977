"""Selecting paths of call graphs: our predicates and Hatchet's object dialect."""
