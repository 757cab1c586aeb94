"""Few-shot adaptation: what measurements on a device say of a predictor's error there.

Experts of several kinds (offsets, factors of known devices, Gaussian processes) are weighted by how
well each predicts the support set when its rows are left out one by one.
"""
