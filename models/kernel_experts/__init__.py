"""Predictors of kernels by experts: a booster of each family of kernels and each measured device.

Single operators in fp32, kernels of inference engines and kernels of AMD GPUs were measured in
dense tables, one each. `family` is the expert of one family, `calibration` its intervals, and
`experts` what all predictors of kernels have in common.
"""
