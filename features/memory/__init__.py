"""Device memory requests of a network in inference and in training."""
