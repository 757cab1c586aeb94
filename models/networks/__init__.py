"""Latency of whole networks on GPUs.

`NetworkBoost` corrects an additive model of launched kernels with boosted trees and a Gaussian
process; `NetworkLatency` combines it with `OperatorBoost` and the time of the host.
"""

from forerun.models.networks.booster import NetworkBoost
from forerun.models.networks.latency import NetworkLatency

__all__ = ["NetworkBoost", "NetworkLatency"]
