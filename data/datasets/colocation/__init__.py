"""Datasets of programs that share a host."""
