"""Datasets of power and energy."""
