"""Predicts the latency of whole networks on GPUs.

`DeviceTime` corrects the sum of a network's kernel times with gradient-boosted trees;
`NetworkLatency` combines it with `OperatorBoost` and the host time.
"""
