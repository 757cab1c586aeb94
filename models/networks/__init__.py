"""Latency of whole networks on GPUs.

`DeviceTime` corrects the sum of a network's kernels with boosted trees; `NetworkLatency` combines
it with `OperatorBoost` and the time of the host.
"""

from forerun.models.networks.device_time import DeviceTime
from forerun.models.networks.latency import NetworkLatency

__all__ = ["DeviceTime", "NetworkLatency"]
