"""Data rates between the devices of a cluster, and messages of data-parallel training."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.language_models.training import Cluster
from forerun.data.workload import Network
from forerun.features.memory.weights import graph_weights

NETWORK_GBIT_S: Final[Mapping[str, float]] = MappingProxyType(
    {"volta": 100.0, "ampere": 200.0, "hopper": 400.0, "blackwell": 400.0}
)
"""Architecture -> network rate per device of common machines (NVIDIA's DGX systems)."""
USUAL_NETWORK_GBIT_S: Final = 400.0
SLOW_NETWORK_GBIT_S: Final = 25.0
"""Network rate of devices connected by PCI Express only."""
NODE_DEVICES: Final = 8
"""Devices connected by links if no sheet says so: those of a server."""
PCIE_BYTES_S: Final = 25e9
"""Achieved rate to host memory over PCI Express 4.0."""


@dataclass(frozen=True)
class Links:
    """Data rates between the devices of a cluster, bytes/s in one direction.

    Attributes:
        node_devices: number of devices connected by fast links.
        link: rate of a device's links.
        network: rate of a device's network.
    """

    node_devices: float
    link: float
    network: float

    @classmethod
    def of(cls, device: Device, cluster: Cluster) -> "Links":
        """The rates of a cluster; unspecified ones are those of common machines with the device."""
        link = (device.interconnect_gbs or 2.0 * PCIE_BYTES_S / 1e9) * 1e9 / 2.0
        common = NETWORK_GBIT_S.get(device.architecture or "", USUAL_NETWORK_GBIT_S)
        network = cluster.network_gbit_s or (common if link > 40e9 else SLOW_NETWORK_GBIT_S)
        node = cluster.node_devices or device.node_devices or NODE_DEVICES
        return cls(float(node), link, network * 1e9 / 8.0)

    def ring(self, size: Column, stride: Column) -> Column:
        """Rate of rings of devices, each `stride` from the next, shape (n,).

        A ring that leaves a node uses the networks of all its members in that node.
        """
        members = np.clip(self.node_devices / stride, 1.0, np.maximum(size, 1.0))
        inside = size * stride <= self.node_devices
        return np.where(inside, self.link, np.minimum(self.link, self.network * members))

    def dispatch_s(self, tokens: Column, vector_bytes: float, copies: int, size: Column) -> Column:
        """Time to send tokens to the devices of their experts, shape (n,).

        A token enters each other node once, regardless of how many of its experts are there
        (DeepEP's kernels and those of arXiv 2412.19437, section 3.2.2), and is then distributed by
        the node's links.

        Args:
            tokens: (n,) tokens per device.
            vector_bytes: size of a token's vector.
            copies: experts that a token is routed to, evenly.
            size: (n,) number of devices that share the experts.
        """
        nodes = np.maximum(1.0, size / self.node_devices)
        entered = (nodes - 1.0) * (1.0 - (1.0 - 1.0 / nodes) ** copies)
        near = copies * (1.0 - 1.0 / np.minimum(np.maximum(size, 1.0), self.node_devices))
        return np.asarray(tokens * vector_bytes * (near / self.link + entered / self.network))


def data_messages_s(network: Network, device: Device) -> float:
    """Time of a training step's messages between data-parallel devices, seconds.

    An all-reduce passes the gradients twice. Sharded weights, including frozen ones, are gathered
    for both passes of each micro-batch, and their gradients are passed once.
    """
    setup = network.training
    if setup is None or setup.data_parallel < 2:
        return 0.0
    weights = [
        weight
        for tensors in graph_weights(network.graph, network.precision, setup)
        for weight in tensors
        if weight.owner is None
    ]
    sent = sum(weight.elements * weight.item for weight in weights if weight.trained)
    if setup.zero_stage == 3:
        whole = sum(weight.elements * weight.item for weight in weights)
        sent += 2.0 * setup.accumulation * whole
    else:
        sent *= 2.0
    size = np.array([float(setup.data_parallel)])
    rate = float(Links.of(device, Cluster()).ring(size, np.ones(1))[0])
    return sent * (1.0 - 1.0 / setup.data_parallel) / rate
