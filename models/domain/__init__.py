"""Domain of a training set: the ranges of its features, and a device's distance from its devices.

Predictors add a limit (`Predictions.limits`) to queries outside the domain.
"""
