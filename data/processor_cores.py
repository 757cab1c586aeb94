"""What one core of a processor does in a cycle, by its microarchitecture.

Sources: Intel's and Arm's software optimization guides, AMD's guides for families 17h, 19h and 1Ah,
and Agner Fog's "The microarchitecture of Intel, AMD and VIA CPUs".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from forerun.data.device import Device


@dataclass(frozen=True, slots=True)
class Core:
    """One core.

    Attributes:
        integer_bits: bits of all vector registers that its pipes take integer operations on in a
            cycle; pipes of 512 bits count as 256, the width of llama.cpp's kernels of four bits.
        dot: whether llama.cpp uses its products of eight-bit integers with sums: VNNI with
            AVX512_VBMI or AVX-VNNI, or Arm's dot products.
        fp32: floating-point operations a cycle in fp32.
        bf16: the same in bf16; that of fp32 where there are no such products.
        int8: operations a cycle on integers of eight bits, on matrix units where there are any.
        clock_ghz: highest clock of the server parts that clouds offer.
        speed: score of one thread in Geekbench 6 at that clock: the median of the cloud's machines
            (Spare Cores, github.com/SpareCores/sc-inspector-data); of Neoverse-N3 and -V3 that of
            their predecessor times the ratio of PassMark's scores, of Alder Lake by its clock.
        family: cores of one design, which are held out together.
    """

    integer_bits: int
    dot: bool
    fp32: int
    bf16: int
    int8: int
    clock_ghz: float
    speed: float
    family: str


CORES: Final[Mapping[str, Core]] = MappingProxyType(
    {
        "sandy-bridge": Core(384, False, 16, 16, 16, 3.0, 660, "intel before avx-512"),
        "ivy-bridge": Core(384, False, 16, 16, 16, 3.0, 690, "intel before avx-512"),
        "haswell": Core(768, False, 32, 32, 32, 2.9, 950, "intel before avx-512"),
        "broadwell": Core(768, False, 32, 32, 32, 2.9, 880, "intel before avx-512"),
        "skylake": Core(768, False, 64, 64, 64, 3.1, 970, "skylake"),
        "cascade-lake": Core(768, False, 64, 64, 256, 3.3, 1140, "skylake"),
        "cooper-lake": Core(768, False, 64, 128, 256, 3.4, 1330, "skylake"),
        "ice-lake": Core(768, True, 64, 64, 256, 3.4, 1640, "ice lake"),
        "alder-lake": Core(768, True, 32, 32, 128, 4.7, 2400, "golden cove"),
        "sapphire-rapids": Core(768, True, 64, 2048, 4096, 3.4, 2070, "golden cove"),
        "emerald-rapids": Core(768, True, 64, 2048, 4096, 3.4, 2160, "golden cove"),
        "zen1": Core(512, False, 16, 16, 16, 2.9, 730, "zen1 and zen2"),
        "zen2": Core(1024, False, 32, 32, 32, 3.3, 1310, "zen1 and zen2"),
        "zen3": Core(1024, False, 32, 32, 32, 3.6, 1610, "zen3"),
        "zen4": Core(1024, True, 32, 64, 128, 3.7, 2030, "zen4"),
        "zen5": Core(1024, True, 64, 128, 256, 4.2, 2820, "zen5"),
        "cortex-a72": Core(256, False, 8, 8, 8, 2.3, 410, "neoverse-n1"),
        "neoverse-n1": Core(256, True, 16, 16, 64, 2.6, 970, "neoverse-n1"),
        "neoverse-n3": Core(256, True, 16, 64, 128, 3.4, 1800, "neoverse-n3 and v3"),
        "neoverse-v1": Core(512, True, 32, 128, 256, 2.6, 1520, "neoverse-v1 and v2"),
        "neoverse-v2": Core(512, True, 32, 128, 256, 2.8, 1870, "neoverse-v1 and v2"),
        "neoverse-v3": Core(512, True, 32, 128, 256, 3.3, 2380, "neoverse-n3 and v3"),
    }
)
"""Microarchitecture, as in `Device.architecture` -> its core."""
MOST_BITS: Final = 1024
USUAL_SPEED: Final = 500.0
"""`Core.speed` for each GHz of a core that is not known."""
BITS_OF_FLOP: Final = 16
"""Bits of `Core.integer_bits` for each floating-point operation a cycle in fp32, in most cores."""


def core_of(device: Device) -> Core | None:
    """The core of a processor; of an unknown microarchitecture, one that follows from its peaks.

    None where the sheet lacks cores, clock or the peak in fp32.
    """
    known = CORES.get(device.architecture or "")
    cores, clock_mhz = device.compute_units, device.boost_clock_mhz
    if known is not None or cores is None or clock_mhz is None or "fp32" not in device.peak_tflops:
        return known
    cycles = cores * clock_mhz * 1e6
    fp32, bf16, int8 = (
        max(1, round(peak * 1e12 / cycles))
        for peak in (device.peak("fp32"), device.peak("bf16"), device.peak("int8"))
    )
    bits = min(BITS_OF_FLOP * fp32, MOST_BITS)
    ghz = clock_mhz / 1e3
    return Core(bits, int8 > fp32, fp32, bf16, int8, ghz, USUAL_SPEED * ghz, "")
