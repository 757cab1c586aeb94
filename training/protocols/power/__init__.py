"""Protocols of power and energy."""
