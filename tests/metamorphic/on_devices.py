"""Laws of networks on devices: siblings, precisions, runtimes, batches, threads."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise, permutations

import numpy as np

from forerun.data.device import Device
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.features.chips import chip_of
from forerun.features.kernels.rows import KernelRows
from forerun.features.operators.roofline import COMPUTE_PRECISION
from forerun.models.kernels.kernel_times import SHORTEST_S
from tests.metamorphic.law import (
    CATALOG,
    Compared,
    Grid,
    Run,
    answered,
    chosen,
    gpus,
    law,
    milliseconds,
    pairs_by,
    processors,
    value,
)

SAME = 0.02
"""Share by which two answers may differ that must be equal."""
SLOWER = 0.03
"""Share by which an answer may be slower that must not be."""
_FIGURES = ("year", "process_nm", "idle_w", "peak_tflops.fp64", "peak_tflops.int8")
"""Figures of a sheet that say nothing about speed in the formats of the grids."""
_CLOCK = "boost_clock_mhz"
"""The figure that sheets of siblings often lack."""
DISPATCH_MS = 0.05
"""Host time of one more operator, at most: published tables show 30 to 60 microseconds each."""


@cache
def siblings() -> tuple[tuple[str, str], ...]:
    """(worse, better): one generation, no figure lower, one higher; from the sheets alone."""
    return tuple(
        (one.name, other.name)
        for one, other in permutations([*gpus(), *processors()], 2)
        if _generation(one) == _generation(other)
        and one.architecture is not None
        and _better(other, one)
    )


def _generation(device: Device) -> tuple[str, str, str]:
    """Kind, vendor and architecture, `blackwell` for `blackwell-ultra` too."""
    return device.kind, device.vendor, (device.architecture or "").removesuffix("-ultra")


def _better(device: Device, than: Device) -> bool:
    own, others = (
        {name: figure for name, figure in each.figures().items() if name not in _FIGURES}
        for each in (device, than)
    )
    if own.keys() ^ others.keys() == {_CLOCK}:
        own, others = ({**figures, _CLOCK: 0.0} for figures in (own, others))
    return own.keys() == others.keys() and own != others and all(own[f] >= others[f] for f in own)


def _turned(
    grid: Grid, field: str, before: str, *after: str
) -> Iterator[tuple[Run, float, Run, float]]:
    """Runs with a value in a field, each with those that have another one and differ in no more."""
    return pairs_by(
        milliseconds(grid),
        lambda run: [
            replace(run, **{field: own}) for own in after if getattr(run, field) == before
        ],
    )


def _ratio(time: float, other: float, most: float) -> float:
    """By what share a time exceeds `most` times the other."""
    return time / (other * most) - 1.0


@law
def better_siblings_are_not_slower(grid: Grid) -> Iterator[Compared]:
    """A device of the same generation without a lower figure is at most 3 % slower."""
    of = {worse: [b for w, b in siblings() if w == worse] for worse, _ in siblings()}
    times = {**milliseconds(grid), **_on_processors(grid)}
    better = pairs_by(times, lambda run: [replace(run, device=d) for d in of.get(run.device, ())])
    for run, slow, other, ms in better:
        yield f"{other} against {run.device}", _ratio(ms, slow, 1.0 + SLOWER)


@law
def faster_sheets_are_not_slower(grid: Grid) -> Iterator[Compared]:
    """Bandwidth, peaks and power in one ratio: the device keeps its shape; trees step by 5 %."""
    base = CATALOG.get("a10")
    sheets = [
        base.model_copy(
            update={
                "name": f"scaled-{place}",
                "memory_bandwidth_gbs": base.bandwidth_gbs * factor,
                "peak_tflops": {p: v * factor for p, v in base.peak_tflops.items()},
                "tdp_w": (base.tdp_w or 0.0) * factor,
            }
        )
        for place, factor in enumerate((0.5, 1.0, 1.5, 2.0, 3.0))
    ]
    for run in _runs(grid, "a10", ("eager", "compiled", "reduce-overhead")):
        queries = [replace(run.query(), device=device) for device in sheets]
        times = [value(answer) or 0.0 for answer in answered(queries)]
        for slow, fast in pairwise(times):
            yield f"{run} on faster sheets", _ratio(fast, slow, 1.05)


@law
def more_compute_units_are_not_slower(grid: Grid) -> Iterator[Compared]:
    """Also where few of them have work: rows of norms, pixels of interpolations."""
    base = CATALOG.get("rtx-4090")
    sheets = [
        base.model_copy(update={"name": f"units-{units}", "compute_units": units})
        for units in (64, 96, 128)
    ]
    for name, graph in (("norms", _maps("group_norm")), ("pixels", _maps("resize"))):
        for batch in grid.batches:
            network = Network(graph, batch, "fp16")
            queries = [Query(network, sheet, Software()) for sheet in sheets]
            times = [value(answer) or 0.0 for answer in answered(queries)]
            for slow, fast in pairwise(times):
                yield f"{name} batch {batch}, more units", _ratio(fast, slow, 1.0 + SLOWER)


def _maps(kind: str) -> OperatorGraph:
    """Convolutions on 64 channels, each with one norm, or an interpolation to twice the size."""
    small, large = (1, 64, 14, 14), (1, 64, 28, 28)
    ops: list[Operator] = []
    for _ in range(8):
        at = len(ops)
        after = large if kind == "resize" else small
        named = "aten.upsample_bilinear2d" if kind == "resize" else "aten.group_norm"
        ops += [
            Operator("conv", "aten.conv2d", (small,), (small,), 36864, {"kernel": (3, 3)},
                     (at - 1,) * bool(at)),
            Operator(kind, named, (small,), (after,), 0, {"width": 12544}, (at,)),
        ]  # fmt: skip
    return OperatorGraph(tuple(ops), source="torch_export")


@law
def precisions_of_equal_arithmetic_agree(grid: Grid) -> Iterator[Compared]:
    """fp16 and bf16 take equally long on devices with equal peaks."""
    for run, ms, _, other in _turned(grid, "precision", "fp16", "bf16"):
        peaks = CATALOG.get(run.device).peak_tflops
        if peaks.get("fp16") == peaks.get("bf16"):
            yield f"{run} against bf16", _ratio(max(ms, other), min(ms, other), 1.0 + SAME)


@law
def autocast_is_not_faster_than_half_precision(grid: Grid) -> Iterator[Compared]:
    """Amp adds casts to fp16, so it is not faster."""
    for _, amp, half, ms in _turned(grid, "precision", "amp", "fp16"):
        yield f"{half} against amp", _ratio(ms, amp, 1.0 + SLOWER)


@law
def autocast_costs_its_casts(grid: Grid) -> Iterator[Compared]:
    """Amp is slower than fp16 by no more than twice what its casts move, and their launches.

    Dispatching a cast takes the host no longer than an average operator of the same fp16 run.
    """
    for run, amp, half, ms in _turned(grid, "precision", "amp", "fp16"):
        yield f"{run} against fp16", _ratio(amp, ms + _casts_ms(run, half, ms), 1.0 + SLOWER)


def _casts_ms(run: Run, other: Run, other_ms: float) -> float:
    """What `run` does beyond another precision of it: twice its traffic, and its launches."""
    (traffic, launches), (least, fewest) = map(kernels_ms, (run, other))
    dispatch_ms = min(DISPATCH_MS, other_ms / fewest)
    return 2.0 * max(traffic - least, 0.0) + dispatch_ms * max(launches - fewest, 0.0)


@cache
def kernels_ms(run: Run) -> tuple[float, float]:
    """Milliseconds of the kernels of one run at their rooflines, and their number."""
    rows = KernelRows.of([run.query()])
    return 1e3 * float((rows.roofline_s * rows.count).sum()), float(rows.count.sum())


@law
def half_precision_is_not_slower(grid: Grid) -> Iterator[Compared]:
    """fp16, bf16 and amp are not slower than fp32, but for casts, where their peak is higher."""
    for run, ms, other, half in _turned(grid, "precision", "fp32", "fp16", "bf16", "amp"):
        device = CATALOG.get(run.device)
        precision = COMPUTE_PRECISION[other.precision]
        if device.peak_tflops.get(precision, 0.0) < device.peak("fp32", matrix=True):
            continue
        casts = _casts_ms(other, run, ms) if other.precision == "amp" else 0.0
        yield f"{other} against fp32", _ratio(half, ms + casts, 1.0 + SLOWER)


@law
def half_precision_gains_what_its_peak_allows(grid: Grid) -> Iterator[Compared]:
    """At the largest batch, at most 1.5 times the ratio of peaks, or three times."""
    for run, ms, other, half in _turned(grid, "precision", "fp32", "amp"):
        if run.batch < grid.batches[-1] or run.mode == "training":
            continue
        matrix = [chip_of(CATALOG.get(run.device), p).matrix for p in ("amp", "fp32")]
        yield f"{other} against fp32", _ratio(ms, half, 1.5 * max(2.0, matrix[0] / matrix[1]))


@law
def compiled_is_not_slower(grid: Grid) -> Iterator[Compared]:
    """A compiled run takes at most 3 % more than an eager one."""
    for run, ms, other, compiled in _turned(grid, "mode", "eager", "compiled"):
        yield f"{other} against {run.mode}", _ratio(compiled, ms, 1.0 + SLOWER)


@law
def recording_launches_does_not_cost(grid: Grid) -> Iterator[Compared]:
    """`reduce-overhead` is not slower than `compiled`, and faster at batch 1."""
    for _, ms, other, recorded in _turned(grid, "mode", "compiled", "reduce-overhead"):
        yield f"{other} against compiled", _ratio(recorded, ms, 1.0 + 1e-9)
        if other.batch == 1:
            yield f"{other} against compiled", 0.0 if recorded < ms else 1.0


@law
def training_takes_longer_than_a_forward_pass(grid: Grid) -> Iterator[Compared]:
    """A training step takes 1.3 to 7 times a forward pass."""
    for _, ms, other, step in _turned(grid, "mode", "eager", "training"):
        yield str(other), max(_ratio(1.3 * ms, step, 1.0), _ratio(step, ms, 7.0))


@law
def latency_does_not_fall_with_the_batch(grid: Grid) -> Iterator[Compared]:
    """More samples never take less time."""
    for run, ms, other, larger in _by_batch(grid):
        yield f"{other} against {run.batch}", _ratio(ms, larger, 1.0 + 1e-9)


@law
def latency_by_sample_does_not_rise_with_the_batch(grid: Grid) -> Iterator[Compared]:
    """A sample of a larger batch takes at most 15 % more."""
    for run, ms, other, larger in _by_batch(grid):
        yield f"{other} against {run.batch}", _ratio(larger / other.batch, ms / run.batch, 1.15)


def _by_batch(grid: Grid) -> Iterator[tuple[Run, float, Run, float]]:
    after = dict(pairwise(grid.batches))
    times = {**milliseconds(grid), **_on_processors(grid)}
    return pairs_by(
        times, lambda run: [replace(run, batch=after[run.batch])] if run.batch in after else []
    )


@law
def no_run_is_shorter_than_its_launches(grid: Grid) -> Iterator[Compared]:
    """Every launched kernel takes at least the shortest that was measured."""
    for run, ms in milliseconds(grid).items():
        yield str(run), _ratio(kernels_ms(run)[1] * SHORTEST_S * 1e3, ms, 1.0 + 1e-9)


@law
def no_run_is_shorter_than_its_kernels(grid: Grid) -> Iterator[Compared]:
    """The rooflines of kernels at rates that large products sustain, short by at most 15 %.

    Without TF32, convolutions of 3 x 3 by Winograd's algorithm do up to 2.25 times less arithmetic
    than counted, and runs may be 25 % shorter. Measured, ALBERT on an RTX 2060 Super takes 0.93 of
    it and BERT-large on a T4 0.85: the sustained rate is taken for a peak.
    """
    for run, ms in milliseconds(grid).items():
        winograd = run.precision == "fp32" and "tf32" not in CATALOG.get(run.device).peak_tflops
        yield str(run), _ratio(kernels_ms(run)[0], ms, 1.25 if winograd else 1.15)


# Processors.

_THREADED = ("eager", "onnxruntime")


@cache
def _some_processors(grid: Grid) -> tuple[Device, ...]:
    every = processors()
    return every if not grid.networks else every[:: max(1, len(every) // 8)]


def _runs(grid: Grid, device: str, modes: tuple[str, ...]) -> list[Run]:
    return [
        Run(name, device, precision, batch, mode)
        for name in chosen(grid)
        for precision in grid.precisions
        if precision != "tf32"
        for mode in modes
        for batch in grid.batches
    ]


@cache
def _on_processors(grid: Grid) -> dict[Run, float]:
    """Milliseconds in fp32 on all cores, in eager mode and by onnxruntime."""
    runs = [
        run
        for device in processors()
        for run in _runs(replace(grid, precisions=("fp32",)), device.name, _THREADED)
    ]
    times = map(value, answered(run.query() for run in runs))
    return {run: ms for run, ms in zip(runs, times, strict=True) if ms is not None}


@law
def threads_matter_up_to_the_cores(grid: Grid) -> Iterator[Compared]:
    """Up to eight, more threads are not slower; one is slower than all; none help beyond the cores.

    Beyond eight, threads may wait longer for each other than they gain: of ncnn's runs on 64
    threads, some are 2.5 times as slow as on 32 (`edge_networks`).
    """
    for device in _some_processors(grid):
        cores = device.compute_units or 1
        powers = 2 ** np.arange(int(np.log2(cores)) + 1)
        counts = sorted({*powers.tolist(), cores, 2 * cores})
        for run in _runs(replace(grid, precisions=("fp32",)), device.name, _THREADED):
            asked = [replace(run, threads=count) for count in (*counts, None)]
            found = [value(answer) for answer in answered(one.query() for one in asked)]
            times = [ms for ms in found if ms is not None]
            if len(times) < len(asked):
                continue
            for (few, slow), (more, fast) in pairwise(zip(asked, times, strict=True)):
                if more.threads is None or more.threads > cores:
                    same = abs(times[-1] / times[counts.index(cores)] - 1.0)
                    yield f"{more}: as {cores} threads", max(same, _ratio(slow, fast, 1.0)) - 1e-6
                else:
                    most = 1.0 + 1e-3 if more.threads <= 8 else 2.0
                    yield f"{more} against {few.threads}", _ratio(fast, slow, most)
            if cores > 1 and run.batch > 1:
                yield f"{asked[0]} against {cores}", _ratio(1.2 * times[-1], times[0], 1.0)


@law
def processors_gain_nothing_from_formats_without_a_rate(grid: Grid) -> Iterator[Compared]:
    """A format of which a processor's sheet gives no rate is not faster than fp32."""
    for device in _some_processors(grid):
        for run in _runs(replace(grid, precisions=("fp32",)), device.name, ("eager", "training")):
            lacking = [p for p in ("fp16", "bf16", "amp") if
                       COMPUTE_PRECISION[p] not in device.peak_tflops]  # fmt: skip
            asked = [run, *(replace(run, precision=p) for p in lacking)]
            full, *others = (value(answer) for answer in answered(one.query() for one in asked))
            for one, ms in zip(asked[1:], others, strict=True):
                if full is not None:
                    yield str(one), 0.0 if ms is None else _ratio(full, ms, 1.0 + 1e-9)


@law
def processors_run_no_engines_of_gpus(grid: Grid) -> Iterator[Compared]:
    """TensorRT's engines run on NVIDIA's GPUs alone."""
    others = [d for d in CATALOG if d.kind == "cpu" or (d.kind == "gpu" and d.vendor != "nvidia")]
    asked = [Run(name, d.name, "fp32", 8, "tensorrt") for d in others for name in chosen(grid)]
    for run, answer in zip(asked, answered(run.query() for run in asked), strict=True):
        yield str(run), 0.0 if value(answer) is None else 1.0
