"""Protocols of co-located programs, which share a host."""
