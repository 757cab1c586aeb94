"""Protocols of architectures in search spaces."""
