"""FPGA chips and tools for hardware designs. Predictions do not depend on figures of a chip."""

from collections.abc import Mapping
from typing import Final

from forerun.data.device import Device
from forerun.data.software import Software


def _fpga(name: str, title: str, vendor: str) -> Device:
    return Device(name=name, title=title, vendor=vendor, kind="fpga", origin="training_set")


VCU1525: Final = _fpga("xilinx-vcu1525", "Xilinx Alveo VCU1525", "amd")
VU13P: Final = _fpga("xilinx-vu13p", "Xilinx Virtex VU13P", "amd")
"""The FPGA whose resources match the `Available*` columns of wa_hls4ml."""
HX8K: Final = _fpga("lattice-ice40-hx8k", "Lattice iCE40 HX8K", "lattice")
NEXTPNR: Final = Software(framework="nextpnr")
"""The placer and router of the dataset circuit_fpga."""

TOOLS: Final[Mapping[str, Software]] = {
    "v18": Software(framework="sdx", version="2018.3"),
    "v20": Software(framework="vitis", version="2020.2"),
}
"""Name in the dataset hlsyn -> tool that synthesises a program's designs."""
