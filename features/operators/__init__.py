"""Operators as columns: kinds, costs, roofline bound, and features on one device."""
