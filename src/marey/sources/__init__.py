"""The world as observations: schedulers, exporters, files, the simulator, and joining them."""
