"""Where pods with shares of GPUs go: six placement policies filled up to the whole capacity."""
