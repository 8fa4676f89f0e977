"""What pictures of a run are drawn from: cells, bands, time-spans, rows in order, the execution
flow.
"""
