"""Operators as columns: kinds, costs, the roofline bound, and features of one device."""
