"""Training runs compared: figures per run, groups of repetitions, tests of significance."""
