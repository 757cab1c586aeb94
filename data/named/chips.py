"""FPGA chips without a spec sheet, and the workloads that are answered for each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

ONLY_FOR: Final[Mapping[str, str]] = MappingProxyType(
    {
        "xilinx-vcu1525": "hardware designs by high-level synthesis (workloads of kind design)",
        "xilinx-vu13p": "layers of hls4ml (workloads of kind benchmark)",
        "lattice-ice40-hx8k": "circuits (`forerun predict` of a netlist, or POST /v1/circuit)",
    }
)
"""Name of a chip -> what it is known for, in words."""
