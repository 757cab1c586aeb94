"""Protocols of circuits."""
