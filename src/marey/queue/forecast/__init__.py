"""When waiting jobs start: features known at the poll, boosted forecasts, intervals calibrated by
blocks of days.
"""
