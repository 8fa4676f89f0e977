"""The vocabulary of training runs: trace tables and symbols."""
