"""Datasets of circuits."""
