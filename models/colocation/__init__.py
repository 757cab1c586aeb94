"""Relative speed of programs that share a host."""
