"""Predicts the relative speed of programs that share a host.

Relative speed is a program's time alone over its time next to its neighbours.
"""
