"""Datasets of peak memory."""
