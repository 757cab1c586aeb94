"""The one table of metrics: unit, printed form, and how operators combine into a workload.

Everything that needs to know a metric (schemas, scores, HTTP, documentation) reads `METRICS`.
"""

from dataclasses import dataclass
from typing import Literal

Combine = Literal["sum", "max", "time_mean"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One measurable quantity of a run.

    Attributes:
        name: column and field name; ends in its unit where it has one.
        unit: printed unit.
        combine: how operators' values combine: `sum`, `max`, or `time_mean` (weighted by latency).
        meaning: one line for schemas and documentation.
    """

    name: str
    unit: str
    combine: Combine
    meaning: str

    def text(self, value: float | None) -> str:
        """The value with its unit for display, or `not known` when it is None."""
        if value is None:
            return "not known"
        return with_unit(value, self.unit)


def with_unit(value: float, unit: str) -> str:
    """A value with its unit for display."""
    figures = f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:,.4g}"
    return f"{figures} {unit}".rstrip()


METRICS: tuple[Metric, ...] = (
    Metric("latency_ms", "ms", "sum", "wall time of one run (one batch, or one training step)"),
    Metric("peak_memory_mib", "MiB", "max", "peak device memory in use, as nvidia-smi shows it"),
    Metric("allocated_memory_mib", "MiB", "max", "peak of live tensors in the allocator"),
    Metric("reserved_memory_mib", "MiB", "max", "peak of memory the allocator holds"),
    Metric("power_w", "W", "time_mean", "average power of the device during the run"),
    Metric("energy_j", "J", "sum", "energy of the device over the run"),
    Metric("utilisation", "", "time_mean", "share of the time the device was busy, 0 to 1"),
)
"""Metrics of one run on one device."""

DESIGN_METRICS: tuple[Metric, ...] = (
    Metric("latency_cycles", "cycles", "sum", "cycles of a hardware design from start to end"),
    Metric("util_dsp", "", "sum", "share of the chip's DSP blocks that a design takes"),
    Metric("util_bram", "", "sum", "share of the chip's block memory that a design takes"),
    Metric("util_lut", "", "sum", "share of the chip's look-up tables that a design takes"),
    Metric("util_ff", "", "sum", "share of the chip's flip-flops that a design takes"),
    Metric("dsp", "", "sum", "DSP blocks that a design takes"),
    Metric("bram", "", "sum", "blocks of memory (18 Kbit) that a design takes"),
    Metric("lut", "", "sum", "look-up tables that a design takes"),
    Metric("ff", "", "sum", "flip-flops that a design takes"),
    Metric("fmax_mhz", "MHz", "max", "highest frequency of a routed circuit's clock"),
    Metric("score", "", "sum", "result of a benchmark; the suite's name says its unit"),
)
"""Metrics of a hardware design or a benchmark; estimated shares of a chip may exceed 1."""

SERVING_METRICS: tuple[Metric, ...] = (
    Metric("tokens_per_s", "tokens/s", "sum", "tokens written or trained on a second, all devices"),
    Metric("tokens_per_s_per_device", "tokens/s", "sum", "the same of one device"),
    Metric("energy_per_token_j", "J", "sum", "energy of all devices for one token written"),
    Metric("samples_per_s", "samples/s", "sum", "inputs answered a second, all devices together"),
    Metric("energy_per_sample_j", "J", "sum", "energy of all devices for one input answered"),
    Metric("ttft_ms", "ms", "sum", "from a request to its first token, with queueing, mean"),
    Metric("ttft_service_ms", "ms", "sum", "from a request to its first token, without queueing"),
    Metric("tpot_ms", "ms", "sum", "time for each token written after the first, mean"),
    Metric("request_latency_ms", "ms", "sum", "from a request to its last token, mean"),
    Metric("requests_per_s", "requests/s", "sum", "requests answered a second, all devices"),
    Metric("usd_per_million_tokens", "USD", "sum", "price of a million tokens written"),
    Metric("wall_power_w", "W", "time_mean", "average power of the whole system at the wall"),
    Metric("wall_energy_per_sample_j", "J", "sum", "energy at the wall for one input answered"),
)
"""Metrics of a model that serves requests in steady state."""

TRAINING_METRICS: tuple[Metric, ...] = (
    Metric("step_s", "s", "sum", "time of one step of training a language model"),
    Metric("mfu", "", "time_mean", "share of the devices' peak arithmetic in the format of the run "
           "that forward and backward passes use, without what is computed again"),
    Metric("hfu", "", "time_mean", "the same with what is computed again"),
    Metric("run_days", "days", "sum", "time of training on all tokens"),
    Metric("run_usd", "USD", "sum", "devices times hours times their price"),
    Metric("run_kwh", "kWh", "sum", "energy of the devices alone, without hosts and cooling"),
    Metric("run_co2_kg", "kg", "sum", "CO2 equivalent of that energy"),
)  # fmt: skip
"""Metrics of training a language model; those of `run_` are of all its tokens."""

CONTENTION_METRICS: tuple[Metric, ...] = (
    Metric("p_cpu", "", "time_mean", "CPU time of a program alone over that with neighbours"),
    Metric("p_wall", "", "time_mean", "wall time of a program alone over that with neighbours"),
)
"""Relative speeds of a co-located program; values above 1 are possible."""

TITLES: dict[str, str] = {
    "latency_ms": "Time of one run", "peak_memory_mib": "Peak memory", "power_w": "Average power",
    "energy_j": "Energy of one run", "utilisation": "Utilisation", "score": "Result",
    "latency_cycles": "Cycles", "fmax_mhz": "Highest frequency", "util_dsp": "Share of DSP blocks",
    "util_bram": "Share of block memory", "util_lut": "Share of look-up tables",
    "util_ff": "Share of flip-flops", "dsp": "DSP blocks", "bram": "Blocks of memory",
    "lut": "Look-up tables", "ff": "Flip-flops", "ttft_ms": "Time to first token",
    "ttft_service_ms": "Time to first token, without queueing", "tpot_ms": "Time per output token",
    "request_latency_ms": "Latency of a request", "requests_per_s": "Requests per second",
    "tokens_per_s": "Tokens per second", "energy_per_token_j": "Energy of one token",
    "tokens_per_s_per_device": "Tokens per second of one device",
    "usd_per_million_tokens": "Price of a million tokens", "samples_per_s": "Samples per second",
    "energy_per_sample_j": "Energy of one sample", "wall_power_w": "Power at the wall",
    "wall_energy_per_sample_j": "Energy of one sample, at the wall",
    "allocated_memory_mib": "Peak of live tensors", "p_cpu": "Relative speed in CPU time",
    "reserved_memory_mib": "Peak of the allocator", "p_wall": "Relative speed in wall time",
    "step_s": "Time of a step",
    "mfu": "Model FLOP utilisation", "hfu": "Hardware FLOP utilisation", "run_days": "Days",
    "run_usd": "Price", "run_kwh": "Energy of the devices", "run_co2_kg": "CO2 equivalent",
}  # fmt: skip
"""Metric -> heading of its column or chart, on every page."""

SHARES: frozenset[str] = frozenset(
    {"utilisation", "mfu", "hfu", "p_cpu", "p_wall", "util_dsp", "util_bram", "util_lut", "util_ff"}
)
"""Metrics on a scale from 0 to about 1: the width of an interval is a difference there, not a
ratio."""


def metric(name: str) -> Metric:
    """The metric of that name.

    Raises:
        KeyError: no metric has that name.
    """
    return _BY_NAME[name]


_BY_NAME = {
    metric.name: metric
    for metric in (
        *(*CONTENTION_METRICS, *TRAINING_METRICS, *SERVING_METRICS),
        *(*DESIGN_METRICS, *METRICS),
    )
}
