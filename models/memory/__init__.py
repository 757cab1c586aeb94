"""Predicts peak memory of training and inference: an analytical plan, corrected by regression.

`CalibratedMemory` adds prediction intervals calibrated on published setups.
"""
