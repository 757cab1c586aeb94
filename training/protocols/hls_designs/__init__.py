"""Protocols of hardware designs."""
