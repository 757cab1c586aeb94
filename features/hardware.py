"""Hardware as a vector with its uncertainty, from a spec sheet, from measurements, or from both.

The catalogue's sheets are modelled as draws from a normal distribution over the logarithms of their
figures (bandwidth, peaks, units, ...). Missing figures are drawn conditionally on the given ones.
Measured times then weight the draws by the likelihood of their roofline times an unknown efficiency
(importance sampling). A black box thus gets a sheet from ten measurements, with a standard
deviation for every figure.
"""

from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

from forerun.data.device import Device, DeviceCatalog, DeviceKind, Precision
from forerun.data.level import HALF_WIDTH
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.shapes import Float64
from forerun.features.operators.features import SHORTEST_KERNEL_MS
from forerun.features.operators.kinds import IS_GEMM
from forerun.features.operators.query_table import query_table
from forerun.features.operators.roofline import COMPUTE_PRECISION, traffic_bytes

FIGURES: tuple[str, ...] = (
    "memory_bandwidth_gbs",
    "fp32_tflops",
    "half_tflops",
    "compute_units",
    "boost_clock_mhz",
    "l2_mib",
    "tdp_w",
    "memory_gib",
    "process_nm",
)
"""Figures in the vector, as natural logarithms."""

DRAWS = 4000
EFFICIENCY = {"kernel": 1.25, "network": 1.4}
"""Typical ratio of measured time to the summed roofline (NeuSight's kernels, timm's networks)."""
DEVICE_SPREAD = 0.3
"""Standard deviation, over devices, of the mean log ratio on a device."""
ROW_SPREAD = 0.35
"""Standard deviation of single workloads around that mean."""
LAUNCH_MS = {"kernel": SHORTEST_KERNEL_MS, "network": 0.005}
"""Milliseconds of a launch: of a kernel in a recorded graph or a full queue, and in a network. With
these, twenty operators of an H100 or H200 determine bandwidth and fp32 peak to factors of 1.4 and
1.1; with the 0.018 of a pair of events, to 1.9 and 1.7."""
_FREEDOM = 4.0
_SLICES = np.array([NormalDist().inv_cdf((i + 0.5) / 11) for i in range(11)])
"""Medians of equally likely slices of a standard normal."""
_LEAST = 0.02
_FEWEST_SHEETS = 5


@dataclass(frozen=True)
class Embedding:
    """A device as the logarithms of `FIGURES`.

    Attributes:
        mean: (9,).
        deviation: (9,) standard deviations; 0 where a sheet gives the figure.
    """

    mean: Float64[np.ndarray, " figures"]
    deviation: Float64[np.ndarray, " figures"]

    def figure(self, name: str) -> tuple[float, float, float]:
        """A figure with its 90 % interval."""
        place = FIGURES.index(name)
        mean, reach = self.mean[place], HALF_WIDTH * self.deviation[place]
        return float(np.exp(mean)), float(np.exp(mean - reach)), float(np.exp(mean + reach))


def sheet_vector(device: Device) -> Float64[np.ndarray, " figures"]:
    """Logarithms of `FIGURES`, shape (9,); NaN for figures that the sheet lacks."""
    peaks = device.peak_tflops
    half = peaks.get("fp16") or peaks.get("bf16")
    figures = {"fp32_tflops": peaks.get("fp32"), "half_tflops": half}
    values = [figures.get(name, getattr(device, name, None)) for name in FIGURES]
    return np.log([np.nan if value is None else float(value) for value in values])


def embedding(device: Device, measurements: Measurements | None = None, seed: int = 0) -> Embedding:
    """A device's vector from its sheet, from measurements, or from both.

    Args:
        device: with any part of a sheet; its kind must be right.
        measurements: kernels or networks with `latency_ms`; None without measurements.
        seed: seed of the draws.
    """
    rng = np.random.default_rng(seed)
    mean, covariance = _sheets(device.kind)
    draws = _completed(sheet_vector(device), mean, covariance, rng)
    weights = np.full(DRAWS, 1.0 / DRAWS)
    if measurements is not None:
        weights = _explained(draws, measurements)
    centre = weights @ draws
    deviation = np.sqrt(np.maximum(weights @ (draws - centre) ** 2, 0.0))
    return Embedding(centre, deviation)


def estimated_sheet(device: Device, measurements: Measurements, seed: int = 0) -> Device:
    """A device whose missing figures are estimated from measurements and marked as such.

    Args:
        device: with a part of a sheet, or none.
        measurements: kernels or networks on it, with `latency_ms`.
        seed: seed of the draws.
    """
    found = embedding(device, measurements, seed)
    note = f"derived: estimated from {len(measurements)} measurements"
    given = device.figures()
    new: dict[str, float] = {}
    peaks: dict[Precision, float] = dict(device.peak_tflops)
    for name in FIGURES:
        value = float(f"{found.figure(name)[0]:.4g}")
        if name == "fp32_tflops":
            peaks.setdefault("fp32", value)
        elif name == "half_tflops":
            if not {"fp16", "bf16"} & set(peaks):
                peaks["fp16"] = peaks["bf16"] = max(value, peaks["fp32"])
        elif name not in given:
            new[name] = max(1, round(value)) if name == "compute_units" else value
    content = device.model_dump() | new | {"peak_tflops": peaks}
    estimated = Device.model_validate(content | {"sources": {}})
    sources = {figure: device.sources.get(figure, "") for figure in given}
    sources = {figure: source for figure, source in sources.items() if source}
    sources |= {figure: note for figure in estimated.figures() if figure not in given}
    caveat = f"figures marked so are estimated from {len(measurements)} measurements"
    caveats = (*(c for c in device.caveats if c != caveat), caveat)
    return estimated.model_copy(update={"sources": sources, "caveats": caveats})


def _explained(
    draws: Float64[np.ndarray, "draws figures"], measurements: Measurements
) -> Float64[np.ndarray, " draws"]:
    """Weights of draws: Student t likelihood of the residuals around a common shift.

    The heavy tails limit the influence of outliers; the shift is integrated out over slices.
    """
    measured = np.log(measurements.values["latency_ms"])
    known = np.flatnonzero(np.isfinite(measured))
    if not len(known):
        return np.full(len(draws), 1.0 / len(draws))
    expected = np.stack([_log_ms(draws, measurements.queries[int(row)]) for row in known], axis=1)
    errors = measured[known] - expected
    shifted = (errors[None] - DEVICE_SPREAD * _SLICES[:, None, None]) / ROW_SPREAD
    score = -(_FREEDOM + 1) / 2 * np.log1p(shifted**2 / _FREEDOM).sum(axis=2)
    weights = np.exp(score - score.max()).sum(axis=0)
    return np.asarray(weights / weights.sum())


def _log_ms(
    draws: Float64[np.ndarray, "draws figures"], query: Query
) -> Float64[np.ndarray, " draws"]:
    """Expected log milliseconds of a query for every draw: rooflines, efficiency, launches."""
    table, precision = query_table(query.run), query.run.precision
    figures = {name: np.exp(draws[:, place]) for place, name in enumerate(FIGURES)}
    half = COMPUTE_PRECISION[precision] != "fp32"
    vector = figures["fp32_tflops"] * 1e9
    matrix = figures["half_tflops"] * 1e9 if half else vector
    is_gemm = IS_GEMM[table.kind]
    bytes_moved = traffic_bytes(table, precision)
    total = np.zeros(len(draws))
    for product, peak in ((True, matrix), (False, vector)):
        of_class = is_gemm == product
        compute = table.flops[of_class] / peak[:, None]
        memory = bytes_moved[of_class] / (figures["memory_bandwidth_gbs"] * 1e6)[:, None]
        bound = np.maximum(compute, memory) * EFFICIENCY[query.run.kind]
        total += (bound + LAUNCH_MS[query.run.kind]) @ table.repeat[of_class]
    return np.log(total)


def _completed(
    known: Float64[np.ndarray, " figures"],
    mean: Float64[np.ndarray, " figures"],
    covariance: Float64[np.ndarray, "figures figures"],
    rng: np.random.Generator,
) -> Float64[np.ndarray, "draws figures"]:
    """Draws (DRAWS, 9) of the distribution given the known figures."""
    given = np.isfinite(known)
    draws = np.tile(np.where(given, known, 0.0), (DRAWS, 1))
    if given.all():
        return draws
    gain = np.linalg.solve(covariance[np.ix_(given, given)], covariance[np.ix_(given, ~given)]).T
    centre = mean[~given] + gain @ (known[given] - mean[given])
    rest = covariance[np.ix_(~given, ~given)] - gain @ covariance[np.ix_(given, ~given)]
    draws[:, ~given] = rng.multivariate_normal(centre, rest, DRAWS, method="eigh")
    return draws


@cache
def _sheets(
    kind: DeviceKind,
) -> tuple[Float64[np.ndarray, " figures"], Float64[np.ndarray, "figures figures"]]:
    """Mean and covariance of the catalogue's sheets of one kind, by expectation maximisation."""
    catalog = DeviceCatalog.load()
    rows = np.array([sheet_vector(d) for d in catalog if d.kind == kind])
    if len(rows) < _FEWEST_SHEETS:
        rows = np.array([sheet_vector(d) for d in catalog])
    known = np.isfinite(rows)
    mean = np.nanmean(np.where(known.any(axis=0), rows, 0.0), axis=0)
    covariance = np.eye(len(FIGURES))
    for _ in range(30):
        filled, extra = np.empty_like(rows), np.zeros_like(covariance)
        for place, row in enumerate(rows):
            filled[place], unsure = _expected(row, mean, covariance)
            extra += unsure
        mean = filled.mean(axis=0)
        covariance = (extra + (filled - mean).T @ (filled - mean)) / len(rows)
        covariance += _LEAST**2 * np.eye(len(FIGURES))
    return mean, covariance


def _expected(
    row: Float64[np.ndarray, " figures"],
    mean: Float64[np.ndarray, " figures"],
    covariance: Float64[np.ndarray, "figures figures"],
) -> tuple[Float64[np.ndarray, " figures"], Float64[np.ndarray, "figures figures"]]:
    """A row with missing figures replaced by expected values, and their conditional covariance."""
    given = np.isfinite(row)
    filled, unsure = row.copy(), np.zeros_like(covariance)
    if not given.all():
        across = covariance[np.ix_(given, ~given)]
        gain = np.linalg.solve(covariance[np.ix_(given, given)], across).T
        filled[~given] = mean[~given] + gain @ (row[given] - mean[given])
        unsure[np.ix_(~given, ~given)] = covariance[np.ix_(~given, ~given)] - gain @ across
    return filled, unsure
