"""Kernel times fitted end to end to measured networks and operators through the sum of kernels."""
