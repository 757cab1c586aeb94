"""Baselines without learning: the roofline bound, and the geometric mean of the training set."""
