"""Average power of GPUs, and what a power limit does to power and time."""
