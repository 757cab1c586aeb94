"""Converts tables of dataset bundles to queries."""
