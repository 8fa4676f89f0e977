"""What the simulated GPUs and hosts show: behaviour, sample kernels, progress."""
