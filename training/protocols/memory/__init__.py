"""Protocols of peak memory."""
