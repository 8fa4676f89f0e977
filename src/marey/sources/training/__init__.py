"""What trackers of experiments know of a run: TensorBoard's event files, MLflow's server."""
