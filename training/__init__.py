"""Fit, evaluate, track, release and promote predictors."""
