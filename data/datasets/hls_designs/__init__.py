"""Datasets of hardware designs."""
