"""Collective operations as families of kernels: a law of latency and rate of the links."""

from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.language_models.kernel import CollectiveName
from forerun.features.llm_kernels.chip import Chip
from forerun.features.llm_kernels.gemm import LAUNCH_S
from forerun.features.llm_kernels.table import LAUNCH_CLOCK_HZ, KernelTable

COLLECTIVE_FEATURES: Final = (
    "log_message",
    "log_devices",
    "log_bound",
    "log_message_over_l2",
    "log_message_per_device_over_units",
    "log_link_over_memory",
)
_ROUNDS: Final[dict[CollectiveName, float]] = {
    "all_reduce": 2.0,
    "all_gather": 1.0,
    "reduce_scatter": 1.0,
    "all_to_all": 1.0,
    "send_receive": 1.0,
}
"""How often the data of a device crosses its link."""
_TYPICAL_LINK_GBS = 64.0


def collective_table(
    message_bytes: Column, devices: Column, operation: CollectiveName, device: Device
) -> KernelTable:
    """One operation on n messages, between devices of one kind and one node.

    The bound is that of a ring: each device sends (devices - 1) / devices of the message, twice
    where it is reduced and gathered, at half the rate that the sheet gives for both directions.
    A link that the sheet does not give is assumed to be PCI Express of the fourth generation.

    Args:
        message_bytes: (n,) size of the whole message, bytes.
        devices: (n,) devices that take part.
        operation: what is exchanged.
        device: each of them.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
    """
    chip = Chip.of(device)
    link = (device.interconnect_gbs or _TYPICAL_LINK_GBS) * 1e9 / 2.0
    crossing = 1.0 if operation == "send_receive" else (devices - 1.0) / devices
    bound = _ROUNDS[operation] * crossing * message_bytes / link
    features = [
        np.log2(message_bytes),
        np.log2(devices),
        np.log(bound * 1e6),
        np.log(message_bytes / chip.l2_bytes),
        np.log(message_bytes / devices / chip.units),
        np.full(len(bound), np.log(link / chip.bandwidth)),
    ]
    steps_s = (devices - 1.0) * 1e-6
    copied_s = message_bytes / chip.bandwidth
    return KernelTable.at_full_clock(
        features=np.column_stack(features),
        bound_s=bound,
        serial_s=np.column_stack([steps_s, copied_s]),
        parallel_s=np.column_stack([bound]),
        launch=np.full(len(bound), LAUNCH_CLOCK_HZ / chip.clock_hz),
        least_s=np.full(len(bound), LAUNCH_S),
        site=devices,
    )
