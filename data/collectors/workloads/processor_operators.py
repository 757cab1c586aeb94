"""Operators at the sizes of inference with a few samples on a processor.

The reference operators of `reference_operators` keep a GPU busy; these take a core milliseconds.
"""

from collections.abc import Iterator

from forerun.data.collectors.runner.trial import Trial
from forerun.data.collectors.workloads.single_operators import (
    conv,
    elements,
    embedding,
    flops,
    linear,
    pool,
    product,
    rows,
    transpose,
)
from forerun.data.graph import Operator


def processor_trials(quick: bool = False) -> tuple[Trial, ...]:
    """Trials of the operators in fp32 through onnxruntime; one of each kind in the quick plan."""
    found = quick_operators() if quick else (*quick_operators(), *further_operators())
    return tuple(
        Trial(op, framework="onnxruntime", runtime="onnxruntime", group=op.kind, flops=flops(op))
        for op in {op.name: op for op in found}.values()
    )


def quick_operators() -> tuple[Operator, ...]:
    """One or two operators of each kind."""
    return (
        *(linear(*sizes) for sizes in ((128, 512, 2048), (1, 2048, 2048))),
        product(8, 128, 64, 128),
        *(conv(*sizes) for sizes in ((1, 64, 64, 56, 3), (1, 256, 256, 14, 3))),
        *(conv(*sizes) for sizes in ((1, 64, 256, 28, 1), (1, 3, 32, 224, 3, 2))),
        conv(1, 144, 144, 56, 3, groups=144),
        conv(1, 96, 96, 28, 3, groups=8),
        *(rows(kind, 512, 768) for kind in ("softmax", "layer_norm")),
        *(elements(*sizes) for sizes in (("gelu", 2**18), ("add", 2**20), ("add", 2**24))),
        *(elements(*sizes) for sizes in (("sigmoid", 2**18), ("relu", 2**20))),
        transpose(512, 512),
        pool(1, 64, 112, 3, 2),
    )


def further_operators() -> Iterator[Operator]:
    """A grid of sizes around `quick_operators`."""
    for count in (16, 64, 256, 1024):
        for k, n in ((192, 768), (768, 192), (384, 384), (1024, 1024), (768, 3072)):
            yield linear(count, k, n)
    yield from (linear(1, k, n) for k, n in ((512, 1000), (1280, 1000), (4096, 1024)))
    for batch, m, k, n in (
        (3, 197, 64, 197),
        (12, 64, 64, 64),
        (12, 256, 64, 256),
        (4, 384, 384, 64),
    ):
        yield product(batch, m, k, n)
    for width, side in ((24, 112), (48, 56), (96, 28), (192, 14), (384, 7), (512, 14)):
        yield conv(1, width, width, side, 3)
        yield conv(1, width, 4 * width, side, 1)
        yield conv(1, 4 * width, width, side, 1)
        yield conv(1, width, 2 * width, side, 3, stride=2)
        yield conv(1, 4 * width, 4 * width, side, 3, groups=4 * width)
    for width, side, groups in ((128, 28, 32), (256, 14, 8), (64, 56, 4), (240, 28, 3)):
        yield conv(1, width, width, side, 3, groups=groups)
    yield from (conv(1, width, width, 28, 5, groups=width) for width in (96, 240))
    yield from (conv(1, 3, width, 224, size, 4) for width, size in ((64, 7), (96, 11)))
    for count, width in ((128, 256), (197, 192), (3136, 96), (64, 1024)):
        yield from (rows(kind, count, width) for kind in ("softmax", "layer_norm", "reduce"))
    for count in (2**14, 2**17, 2**22):
        yield from (elements(name, count) for name in ("add", "mul", "relu", "gelu", "sigmoid"))
    yield from (transpose(side, side) for side in (128, 1024, 2048))
    yield from (embedding(128, 8192, width) for width in (256, 1024))
    yield from (pool(1, width, side, 3, 2) for width, side in ((32, 56), (256, 28)))
