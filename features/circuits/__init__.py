"""Longest paths and features of digital circuits: cells and connections."""
