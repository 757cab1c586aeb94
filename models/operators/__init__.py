"""Latency of single operators on GPUs: boosted trees by family of operators, mixed over devices.

The sum over the operators of a network is the network's device time.
"""

from forerun.models.operators.booster import OperatorBoost

__all__ = ["OperatorBoost"]
