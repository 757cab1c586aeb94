"""Figures that others report on the same data."""
