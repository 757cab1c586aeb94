"""Few-shot adaptation: a predictor's error on a device, estimated from a few measurements there.

Experts of several kinds (offsets, factors of known devices, Gaussian processes) are weighted by the
densities with which they predict held-out rows or groups of the support set.
"""
