"""Predicts the average power of GPUs, and the effect of a power limit on power and time.

`OperatorPower` predicts the power of operators and of networks in inference and training;
`PowerCap` predicts power and time of training jobs measured at several limits.
"""
