"""Average power of GPUs, and what a power limit does to power and time.

`OperatorPower` answers for operators, networks and training; `PowerCap` for training jobs that were
measured at several limits.
"""

from forerun.models.power.operator_power import OperatorPower
from forerun.models.power.training_jobs import PowerCap

__all__ = ["OperatorPower", "PowerCap"]
