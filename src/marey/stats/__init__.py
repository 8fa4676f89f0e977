"""Pure array maths without any knowledge of clusters: sketches, divergences, tests, graphs."""
