"""What fills a rank's memory over a step: kinds of blocks, recomputation, state that is held."""
