"""Few-shot adaptation: estimates a predictor's error on a device from a few measurements there.

Several kinds of experts (offsets, factors of known devices, Gaussian processes) are combined with
weights from their predictive densities on held-out rows or groups of the support set.
"""
