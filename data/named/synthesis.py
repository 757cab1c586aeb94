"""FPGA chips and tools of hardware designs. No figure of a chip enters a prediction."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from forerun.data.device import Device
from forerun.data.software import Software

VCU1525: Final = Device(
    name="xilinx-vcu1525",
    title="Xilinx Alveo VCU1525",
    vendor="amd",
    kind="fpga",
    origin="training_set",
)
VU13P: Final = Device(
    name="xilinx-vu13p",
    title="Xilinx Virtex VU13P",
    vendor="amd",
    kind="fpga",
    origin="training_set",
)
"""The FPGA whose resources match the `Available*` columns of wa_hls4ml."""

HX8K: Final = Device(
    name="lattice-ice40-hx8k",
    title="Lattice iCE40 HX8K",
    vendor="lattice",
    kind="fpga",
    origin="training_set",
)
NEXTPNR: Final = Software(framework="nextpnr")
"""The placer and router of the dataset circuit_fpga."""

TOOLS: Final[Mapping[str, Software]] = MappingProxyType(
    {
        "v18": Software(framework="sdx", version="2018.3"),
        "v20": Software(framework="vitis", version="2020.2"),
    }
)
"""Name in the dataset hlsyn -> tool that synthesises a program's designs."""
