"""Latency of single operators on GPUs: boosted trees by family of operators, mixed over devices.

Sums over the operators of a network give the time of the network on the device alone.
"""

from forerun.models.operators.booster import OperatorBoost

__all__ = ["OperatorBoost"]
