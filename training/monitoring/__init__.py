"""Answers against what was observed afterwards: live errors by slice, and changes in time."""
