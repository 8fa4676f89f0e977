"""Commands that read a training run: traces and what follows from them."""
