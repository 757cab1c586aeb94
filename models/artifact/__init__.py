"""Predictors on disk: sealed folders of JSON and text that run no code when they are loaded."""
