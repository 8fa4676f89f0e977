"""One pass of a scheduler over its line: who starts now and where, and what is planned for whom."""
