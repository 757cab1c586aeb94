"""Laws of single answers: intervals, bounds, peaks, power, energy."""

from collections.abc import Iterator
from functools import cache

import numpy as np

from forerun.features.operators.query_table import query_table
from forerun.models.answers.answer import Answer
from forerun.models.answers.drawn_power import most_w
from tests.metamorphic.law import (
    LATENCY,
    Compared,
    Grid,
    Run,
    answered,
    chosen,
    gpus,
    law,
    processors,
    value,
)

METRICS = (LATENCY, "power_w", "energy_j", "peak_memory_mib")
ROUNDING = 1e-9


@cache
def _drawn(grid: Grid) -> tuple[tuple[Run, Answer], ...]:
    """Runs drawn by a fixed seed, with all metrics."""
    draw = np.random.default_rng(5)
    modes = ("eager", "compiled", "reduce-overhead", "torchscript", "onnxruntime", "training")
    devices = [device.name for device in (*gpus(), *processors())]
    names = chosen(grid)
    runs = [
        Run(
            names[draw.integers(len(names))],
            devices[draw.integers(len(devices))],
            grid.precisions[draw.integers(len(grid.precisions))],
            int(2 ** draw.integers(0, 9)),
            modes[draw.integers(len(modes))],
        )
        for _ in range(grid.sample)
    ]
    found = zip(runs, answered((run.query() for run in runs), METRICS), strict=True)
    return tuple((run, answer) for run, answer in found if answer is not None)


@law
def values_are_inside_their_intervals(grid: Grid) -> Iterator[Compared]:
    """0 < low <= value <= high."""
    for run, answer in _drawn(grid):
        for name in answer.trust:
            own = answer.estimates[name]
            if own.low is None or own.high is None:
                continue
            inside = 0.0 < own.low <= own.value <= own.high
            off = max(own.low / own.value, own.value / own.high) - 1.0
            yield f"{name} of {run}", 0.0 if inside else max(off, ROUNDING)


@law
def no_answer_is_below_its_bound(grid: Grid) -> Iterator[Compared]:
    """The roofline of an answer is not above its latency."""
    for run, answer in _drawn(grid):
        ms = value(answer)
        if ms is not None and answer.bound_ms is not None:
            yield str(run), answer.bound_ms / (ms * (1.0 + ROUNDING)) - 1.0


@law
def no_answer_is_above_a_peak(grid: Grid) -> Iterator[Compared]:
    """Arithmetic of all operators over the latency is below the device's highest peak.

    By Winograd's algorithm, convolutions in fp32 do up to 2.25 times less than is counted.
    """
    for run, answer in _drawn(grid):
        ms, device = value(answer), answer.query.device
        if ms is None:
            continue
        table = query_table(answer.query.network)
        flops = float(table.flops @ table.repeat)
        peak = max(device.peak_tflops.values())
        if run.precision == "fp32":
            own = max(device.peak("fp32", matrix=True), device.peak_tflops.get("tf32", 0.0))
            peak = min(peak, 2.25 * own)
        yield str(run), flops / (ms * 1e9) / peak - 1.0


@law
def power_is_within_what_the_device_draws(grid: Grid) -> Iterator[Compared]:
    """Between nothing and the design power, or what was measured above it."""
    for run, answer in _drawn(grid):
        watts, most = value(answer, "power_w"), most_w(answer.query)
        if watts is not None and most is not None:
            yield str(run), watts / (most * (1.0 + ROUNDING)) - 1.0 if watts > 0.0 else 1.0


@law
def energy_is_power_times_time(grid: Grid) -> Iterator[Compared]:
    """Never a third number."""
    for run, answer in _drawn(grid):
        joules, watts, ms = (value(answer, name) for name in ("energy_j", "power_w", LATENCY))
        if joules is not None and watts is not None and ms is not None:
            yield str(run), abs(joules / (watts * ms / 1e3) - 1.0) - ROUNDING


@law
def parts_add_up_to_the_latency(grid: Grid) -> Iterator[Compared]:
    """Milliseconds by class of operators are not negative and add up."""
    for run, answer in _drawn(grid):
        ms, parts = value(answer), answer.breakdown_ms.values()
        if ms is not None and parts:
            wrong = abs(sum(parts) / ms - 1.0) - 1e-6
            yield str(run), max(wrong, 1.0 if min(parts) < 0.0 else 0.0)
