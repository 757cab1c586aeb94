"""Operations per cycle of one processor core, by microarchitecture.

Sources: Intel's and Arm's software optimization guides, AMD's guides for families 17h, 19h and 1Ah,
and Agner Fog's "The microarchitecture of Intel, AMD and VIA CPUs".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from forerun.data.facts import facts_of
from forerun.data.spec_sheet import Device


@dataclass(frozen=True, slots=True)
class Core:
    """One core.

    Attributes:
        integer_bits: bits of vector registers on which its pipes can start integer operations per
            cycle; pipes of 512 bits count as 256, the width of llama.cpp's four-bit kernels.
        dot: whether llama.cpp uses its dot products of eight-bit integers: VNNI with AVX512_VBMI
            or AVX-VNNI, or Arm's dot products.
        fp32: floating-point operations per cycle in fp32.
        bf16: the same in bf16; equal to fp32 without bf16 products.
        int8: operations per cycle on eight-bit integers, on matrix units if there are any.
        clock_ghz: highest clock of the server parts that clouds offer.
        speed: Geekbench 6 score of one thread at that clock: the median over cloud machines
            (Spare Cores, github.com/SpareCores/sc-inspector-data). For Neoverse-N3 and -V3 it is
            their predecessor's score times the ratio of PassMark scores, for Alder Lake it is
            scaled by the clock.
        family: cores of the same design, which are held out together.
    """

    integer_bits: int
    dot: bool
    fp32: int
    bf16: int
    int8: int
    clock_ghz: float
    speed: float
    family: str


CORES: Final[Mapping[str, Core]] = {
    name: Core(*facts) for name, facts in facts_of(__file__)["cores"].items()
}
"""Microarchitecture, as in `Device.architecture` -> its core."""
MOST_BITS: Final = 1024
USUAL_SPEED: Final = 500.0
"""`Core.speed` per GHz for unknown cores."""
BITS_OF_FLOP: Final = 16
"""Bits of `Core.integer_bits` per fp32 floating-point operation per cycle, in most cores."""


def core_of(device: Device) -> Core | None:
    """The core of a processor; for an unknown microarchitecture, one derived from its peaks.

    None if the spec sheet lacks cores, clock or the fp32 peak.
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
