"""Whole answers: what all predictors together say of a question, and the trust in it."""
