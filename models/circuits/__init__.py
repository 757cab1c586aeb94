"""Predictors of the timing of circuits."""
