"""Scores: pure functions from measured and predicted columns."""
