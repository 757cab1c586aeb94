"""Latency of whole networks on GPUs: device time, host time, and their prediction intervals."""
