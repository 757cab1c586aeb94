"""Number formats of weights and activations: bytes per value, and precision of products.

Bytes include the scales that are stored for each group of values: one of 8 bits for 16 values in
NVFP4 and for 32 in MXFP4 and MXFP8 (OCP MX specification), one of 16 bits for 32 integers of four
bits. The scales of blockwise FP8, one for 128 x 128 weights, are not counted. Those of GGUF files
are means over all weights of Llama 2 7B, as llama.cpp lists them (`tools/quantize/README.md`), or
follow from blocks of 32 weights. NF4 has a byte of scale for 64 values and four bytes for 256 such
scales (double quantisation, Dettmers et al. 2023).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from forerun.data.errors import UnanswerableQuery
from forerun.data.spec_sheet import Device, Precision

GGUF: Final[Mapping[str, float]] = {
    **{"q2_k": 3.35, "q3_k_s": 3.50, "q3_k_m": 3.91, "q3_k_l": 4.27, "q4_0": 4.5},
    **{"q4_k_s": 4.58, "q4_k_m": 4.84, "q4_1": 5.0, "q5_0": 5.5, "q5_k_s": 5.52},
    **{"q5_k_m": 5.68, "q5_1": 6.0, "q6_k": 6.56, "q8_0": 8.5},
}
"""Bits per weight in a GGUF format, as an average over all matrices of a model."""


@dataclass(frozen=True, slots=True)
class Format:
    """A number format.

    Attributes:
        bytes: bytes per value, including its share of the scales.
        precisions: precisions in which products are computed, best first. Kernels unpack four-bit
            weights to half precision if the device cannot multiply them; llama.cpp's kernels
            multiply integers of eight bits. Engines use FP16 for BF16 on devices without such
            arithmetic, and multiply FP32 in full (`VLLM_FLOAT32_MATMUL_PRECISION`).
    """

    bytes: float
    precisions: tuple[Precision, ...]

    def precision_on(self, device: Device) -> Precision:
        """The precision of products on a device.

        Raises:
            UnknownPrecision: the spec sheet has no peak for any suitable precision.
        """
        found = (precision for precision in self.precisions if precision in device.peak_tflops)
        return next(found, None) or device.computes_in(self.precisions[-1])


_HALF: Final = ("bf16", "fp16")
FORMATS: Final[Mapping[str, Format]] = {
    "fp32": Format(4.0, ("fp32",)),
    "tf32": Format(4.0, ("tf32", "fp32")),
    "bf16": Format(2.0, _HALF),
    "fp16": Format(2.0, ("fp16", "bf16")),
    "fp8": Format(1.0, ("fp8", *_HALF)),
    "int8": Format(1.0, ("int8", *_HALF)),
    "mxfp8": Format(1.0 + 1 / 32, ("fp8", *_HALF)),
    "nvfp4": Format(0.5 + 1 / 16, ("fp4", *_HALF)),
    "mxfp4": Format(0.5 + 1 / 32, ("fp4", *_HALF)),
    "int4": Format(0.5 + 2 / 32, _HALF),
    "nf4": Format(0.5 + 1 / 64 + 4 / (64 * 256), _HALF),
    **{name: Format(bits / 8, ("int8", "fp16", "bf16")) for name, bits in GGUF.items()},
}
"""Name -> format."""


def trained_in(name: str, device: Device, field: str = "precision") -> Precision:
    """The precision of a device's products in training with a number format.

    Half precision runs at the fp32 rate of devices without it. Frameworks refuse narrower formats
    there: Transformer Engine's `check_fp8_support`, torchao's `convert_to_float8_training`.

    Raises:
        UnanswerableQuery: frameworks refuse the format.
        UnknownPrecision: the sheet has no peak for it or for any substitute.
    """
    own = FORMATS[name].precisions[0]
    if FORMATS[name].bytes < 2.0 and own not in device.peak_tflops:
        raise UnanswerableQuery(
            f"{field} = {name}: frameworks train in it only on devices with {own} units, and the "
            f"spec sheet of {device.name} has no {own} peak; use bf16 or fp16."
        )
    return device.computes_in(own)


@dataclass(frozen=True, slots=True)
class Product:
    """The formats of both operands of a matrix product."""

    weights: Format
    activations: Format

    @property
    def precision(self) -> Precision:
        """Precision in which matrix units multiply the operands: that of the wider operand."""
        return self.activations.precisions[0]


PRODUCTS: Final[Mapping[str, Product]] = {
    **{name: Product(FORMATS[name], FORMATS[name]) for name in ("bf16", "fp16", "fp8", "nvfp4")},
    "fp8_block": Product(FORMATS["fp8"], FORMATS["fp8"]),
    "int4": Product(FORMATS["int4"], FORMATS["bf16"]),
    "mxfp4": Product(FORMATS["mxfp4"], FORMATS["bf16"]),
    "mxfp4_mxfp8": Product(FORMATS["mxfp4"], FORMATS["mxfp8"]),
    "mxfp4_mxfp4": Product(FORMATS["mxfp4"], FORMATS["mxfp4"]),
}
"""Name of a `ProductFormat` of `data.language_models.kernel` -> the formats of its operands."""
