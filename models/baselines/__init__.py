"""Baselines in every table of scores: the roofline bound, and the geometric mean of the training
set.
"""
