"""Laws of the bundled predictor's latency on GPUs, over networks, precisions, runtimes, batches.

Forty networks on twenty GPUs, drawn by a fixed seed so that every GPU has two networks. The laws
hold of any answer, whatever was measured. Each exception is listed with how far it goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from forerun.data.datasets.networks.published_networks import PublishedNetworks
from forerun.data.device import Device, DeviceCatalog
from forerun.data.graph import OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network, NumberFormat
from forerun.features.lowering import lowered, lowering_mode
from forerun.features.networks.features import chip_of, network_features
from forerun.features.networks.kernel_floor import SHORTEST_KERNEL_S
from forerun.features.published.zoo import read_graphs
from forerun.features.readers import read_graph
from forerun.models.artifact.loading import bundled
from forerun.models.networks.latency import NetworkLatency
from forerun.models.router import Router

pytestmark = pytest.mark.slow
CATALOG = DeviceCatalog.load()
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
PACKAGED = (
    *("resnet50-224", "seresnext101_32x4d-224", "efficientnet_b0-224", "efficientnet_b4-380"),
    *("resnet18-224", "resnet34-224", "resnet101-224", "efficientnet_b1-224"),
    *("efficientnet_b3-224", "efficientnet_widese_b4-380", "ssd300_resnet50-300"),
    *("bert_large_squad-384-eager", "bert_base-128-eager", "bert_base-128-sdpa"),
    *("bert_base_mlm-512-sdpa", "albert_base-256-eager", "albert_base-512-sdpa"),
    *("biogpt-64-sdpa", "biogpt-256-eager", "pythia_410m-128-sdpa", "pythia_410m-512-eager"),
    *("pythia_410m-2048-sdpa", "vit_base-224-eager", "beit_base-224-sdpa", "resnet50_hf-224"),
    *("data2vec_base-224-eager", "convnext_large-224", "segformer_b0-512"),
    *("deeplabv3_mobilenet_v2-513", "sam_vit_b_encoder-1024", "detr_resnet50-800x1066"),
)
GPUS = (
    *("p4", "p100-pcie-16gb", "gtx-1080-ti", "v100-sxm2-16gb", "t4", "rtx-2080-ti"),
    *("a100-sxm-80gb", "a30", "a10", "a40", "rtx-3060", "rtx-3090", "l4", "l40s", "rtx-4090"),
    *("h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "rtx-5090", "mi300x"),
)
WITHOUT_MATRIX_UNITS = ("p4", "p100-pcie-16gb", "gtx-1080-ti")
RUNTIMES = ("eager", "compiled", "reduce-overhead")
EAGER, COMPILED, RECORDED = range(3)
BATCHES = (1, 4, 24, 256, 1024)
TRAINED = (0, 1, 2, 4)
"""Indices of the batch sizes at which a training step is asked for, too."""

WINOGRAD = 1.25
"""Full precision without TF32 only: convolutions of 3 x 3 by Winograd's algorithm do up to 2.25
times less arithmetic than the bound counts. That is the presumed reason, not a measured one:
ResNet-34 is predicted at 0.82 of its bound on the V100, and no measured row of it is at hand."""
BELOW_BOUND = 1.15
"""Others: the bound takes what large products sustain (V100, P4, T4: by their power) for a peak;
measured, ALBERT on an RTX 2060 Super lies at 0.93 of it and BERT-large on a T4 at 0.85."""
SLOWER_COMPILED = 0.03
"""Share of answers where compiled takes over 1.1 times the eager run: the boosters of both are
fitted apart, and eager runs in full precision are half the operators' predictor's, compiled ones
none. At worst 1.7 times, ResNet-50 in tf32 on an A100 at batch 256 and above, where the eager
answer is the wrong one: its only published row in full precision that counts as the device's own
waits for the host (7.0 ms at batch 16, 6.7 at batch 4). Measured, 3 of 2,342 pairs of timm_bench
are slower compiled by more than 5 %, all of them ConvMixer (1.9 to 2.5 times)."""


@cache
def networks() -> Mapping[str, OperatorGraph]:
    dataset = PublishedNetworks()
    graphs = read_graphs(dataset.tidy(dataset.packaged())["graphs"])
    light = {path.stem: read_graph(path.read_bytes()) for path in sorted(LIGHT.glob("*.onnx"))}
    return {**{name: graphs[name] for name in PACKAGED}, **light}


@cache
def latency() -> NetworkLatency:
    predictor = bundled().predictor
    assert isinstance(predictor, Router)
    return next(part for part in predictor.parts if isinstance(part, NetworkLatency))


def precisions(device: Device) -> tuple[NumberFormat, ...]:
    return ("fp32", "amp", "fp16", "bf16", *(("tf32",) if "tf32" in device.peak_tflops else ()))


def ask(
    graph: OperatorGraph,
    device: Device,
    batch: int,
    precision: NumberFormat,
    runtime: str = "eager",
    phase: str = "inference",
) -> Query:
    software = Software(version="2.4.0", runtime=runtime)  # type: ignore[arg-type]
    return Query(Network(graph, batch, precision, phase), device, software)  # type: ignore[arg-type]


def milliseconds(queries: list[Query]) -> np.ndarray:
    return latency().predict(queries).values["latency_ms"]


@dataclass(frozen=True)
class Grid:
    """Milliseconds of one network on one GPU, (precisions, runtimes, batches)."""

    network: str
    device: Device
    names: tuple[NumberFormat, ...]
    latency: np.ndarray
    low: np.ndarray
    high: np.ndarray
    host: np.ndarray
    bound: np.ndarray
    launches: np.ndarray
    training: np.ndarray

    def of(self, precision: NumberFormat) -> np.ndarray:
        """(runtimes, batches)."""
        return np.asarray(self.latency[self.names.index(precision)])


def bound_ms(query: Query) -> tuple[float, float]:
    """Sum of the kernels' rooflines in milliseconds, and their number."""
    network = query.workload
    assert isinstance(network, Network)
    mode = lowering_mode(network.graph, network.precision, query.software)
    kernels = lowered(network.graph, mode)
    chip = chip_of(query.device, network.precision)
    return network_features(kernels, chip, network, query.software)[1] * 1e3, kernels.launches


def grid(name: str, device: Device) -> Grid:
    graph, names = networks()[name], precisions(device)
    queries = [ask(graph, device, b, p, r) for p in names for r in RUNTIMES for b in BATCHES]
    shape = (len(names), len(RUNTIMES), len(BATCHES))
    answer = latency().predict(queries)
    bounds = np.array([bound_ms(query) for query in queries])
    trained = [BATCHES[index] for index in TRAINED]
    training = [ask(graph, device, b, p, phase="training") for p in names for b in trained]
    return Grid(
        name,
        device,
        names,
        answer.values["latency_ms"].reshape(shape),
        answer.low["latency_ms"].reshape(shape),
        answer.high["latency_ms"].reshape(shape),
        latency().host.seconds(queries)[0].reshape(shape) * 1e3,
        bounds[:, 0].reshape(shape),
        bounds[:, 1].reshape(shape),
        milliseconds(training).reshape(len(names), len(TRAINED)),
    )


@pytest.fixture(scope="module")
def grids() -> list[Grid]:
    order = np.random.default_rng(12).permutation(2 * len(GPUS))
    assert len(networks()) == len(order)
    return [
        grid(name, CATALOG.get(GPUS[place % len(GPUS)]))
        for name, place in zip(networks(), order.tolist(), strict=True)
    ]


def test_eager_runs_take_at_least_what_the_host_takes(grids: list[Grid]) -> None:
    for one in grids:
        assert (one.latency[:, EAGER] >= one.host[:, EAGER] * (1 - 1e-9)).all(), one.network


def test_no_run_is_shorter_than_its_launches(grids: list[Grid]) -> None:
    for one in grids:
        floor = one.launches * SHORTEST_KERNEL_S * 1e3
        assert (one.latency >= floor * (1 - 1e-9)).all(), (one.network, one.device.name)


def test_latency_never_falls_with_the_batch(grids: list[Grid]) -> None:
    """Powers of two and batches between them alike."""
    for one in grids:
        steps = one.latency[..., 1:] / one.latency[..., :-1]
        assert (steps >= 1 - 1e-9).all(), (one.network, one.device.name, steps.min())


def test_latency_grows_little_faster_than_the_batch(grids: list[Grid]) -> None:
    more = np.array(BATCHES[1:]) / np.array(BATCHES[:-1])
    for one in grids:
        steps = one.latency[..., 1:] / one.latency[..., :-1] / more
        assert (steps < 1.3).all(), (one.network, one.device.name, steps.max())


def test_at_batch_one_amp_is_near_fp32_where_the_host_decides(grids: list[Grid]) -> None:
    """Half to twice. A network that fills the device with one sample may gain more, as its
    matrix units allow: Pythia of 2,048 tokens is 5.7 times faster in amp on an A30.
    """
    checked = 0
    for one in grids:
        amp, full = one.of("amp")[EAGER, 0], one.of("fp32")[EAGER, 0]
        waits = full < 1.3 * one.host[one.names.index("fp32"), EAGER, 0]
        checked += waits
        low = 0.5 if waits else 0.1
        assert low * full <= amp <= 2.0 * full, (one.network, one.device.name, amp / full)
    assert checked > 15


def test_at_large_batches_amp_gains_what_matrix_units_allow(grids: list[Grid]) -> None:
    for one in grids:
        if one.device.name in WITHOUT_MATRIX_UNITS:
            continue
        amp, full = one.of("amp")[:, -1], one.of("fp32")[:, -1]
        chips = (chip_of(one.device, p) for p in ("amp", "fp32"))
        ratio = max(2.0, np.divide(*(chip.matrix for chip in chips)))
        where = (one.network, one.device.name, amp / full)
        assert (amp <= 1.1 * full).all(), where
        assert (amp >= full / (1.5 * ratio)).all(), where


def test_recording_launches_never_costs_and_no_runtime_is_ignored(grids: list[Grid]) -> None:
    for one in grids:
        assert (one.latency[:, RECORDED] <= one.latency[:, COMPILED] * (1 + 1e-9)).all()
        # At batch 1 the host tells the three apart.
        eager, compiled, recorded = one.latency[:, :, 0].T
        assert (np.abs(np.log(compiled / eager)) > 1e-6).all(), (one.network, one.device.name)
        assert (recorded < compiled).all(), (one.network, one.device.name)


def test_compiling_rarely_costs(grids: list[Grid]) -> None:
    ratios = np.concatenate(
        [(one.latency[:, COMPILED] / one.latency[:, EAGER]).ravel() for one in grids]
    )
    assert (ratios > 1.1).mean() < SLOWER_COMPILED
    assert ratios.max() < 1.75
    assert np.median(ratios) < 0.95


def test_no_run_beats_the_rooflines_of_its_kernels(grids: list[Grid]) -> None:
    for one in grids:
        below = one.bound / one.latency
        winograd = np.array([p == "fp32" and "tf32" not in one.device.peak_tflops
                             for p in one.names])  # fmt: skip
        where = (one.network, one.device.name)
        assert (below[winograd] < WINOGRAD).all(), (*where, below[winograd].max())
        assert (below[~winograd] < BELOW_BOUND).all(), (*where, below[~winograd].max())


def test_a_training_step_takes_longer_than_a_forward_pass(grids: list[Grid]) -> None:
    for one in grids:
        ratio = one.training / one.latency[:, EAGER, TRAINED]
        assert (ratio > 1.3).all(), (one.network, one.device.name, ratio.min())
        assert (ratio < 7.0).all(), (one.network, one.device.name, ratio.max())


def test_answers_are_inside_their_intervals(grids: list[Grid]) -> None:
    for one in grids:
        assert (one.low > 0).all()
        assert (one.low <= one.latency).all()
        assert (one.latency <= one.high).all()


@pytest.mark.parametrize("name", ["resnet50-224", "bert_base-128-sdpa", "light_squeezenet"])
def test_a_sheet_that_is_faster_in_every_figure_is_not_slower(name: str) -> None:
    """Bandwidth, peaks and power in one ratio: the device keeps its shape."""
    # The trees step: a ratio of figures that moves across one may cost a few percent.
    base = CATALOG.get("a10")
    sheets = [
        base.model_copy(
            update={
                "name": f"scaled-{i}",
                "memory_bandwidth_gbs": base.memory_bandwidth_gbs * factor,
                "peak_tflops": {p: v * factor for p, v in base.peak_tflops.items()},
                "tdp_w": base.tdp_w * factor,
            }
        )
        for i, factor in enumerate((0.5, 1.0, 1.5, 2.0, 3.0))
    ]
    graph = networks()[name]
    for precision in ("fp32", "amp"):
        for runtime in RUNTIMES:
            for batch in (1, 64, 1024):
                times = milliseconds([ask(graph, d, batch, precision, runtime) for d in sheets])
                assert (np.diff(np.log(times)) < 0.05).all(), (precision, runtime, batch, times)
                assert times[-1] <= times[0]
