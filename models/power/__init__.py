"""Average power of GPUs, and what a power limit does to power and time.

`OperatorPower` predicts the power of operators and of networks in inference and training;
`PowerCap` predicts power and time of training jobs that were measured at several limits.
"""

from forerun.models.power.operator_power import OperatorPower
from forerun.models.power.training_jobs import PowerCap

__all__ = ["OperatorPower", "PowerCap"]
