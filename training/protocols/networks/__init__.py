"""Protocols of operators and networks."""
