"""Answers about circuits: frequencies, critical paths and resources."""
