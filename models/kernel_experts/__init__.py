"""Predicts kernel latency with one expert per kernel family and gradient-boosted trees per device.

There are three densely measured domains: single operators in fp32, kernels of inference engines,
and kernels of AMD GPUs. `family` holds the expert of one family, the calibration of its intervals,
and `KernelExperts`, the base class of all kernel predictors.
"""
