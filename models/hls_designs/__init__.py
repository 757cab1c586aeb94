"""Cycles and area of hardware designs that high-level synthesis makes of a program."""
