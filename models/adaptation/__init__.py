"""Experts that carry a predictor over to new hardware from a few measurements."""
