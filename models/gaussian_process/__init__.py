"""Gaussian processes: the posterior in closed form, regression on few rows, categorical effects."""
