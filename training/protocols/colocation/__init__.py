"""Protocols of programs that share a host."""
