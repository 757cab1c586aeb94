"""Circuits as plain data."""
