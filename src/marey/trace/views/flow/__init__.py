"""The execution flow of a step: nodes with their spread, edges by evidence."""
