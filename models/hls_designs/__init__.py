"""Cycles and area of hardware designs that high-level synthesis generates from a program."""
