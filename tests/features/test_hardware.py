"""Hardware as a vector: exact where a sheet tells, honest where measurements must."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.hardware import (
    FIGURES,
    LAUNCH_MS,
    embedding,
    estimated_sheet,
    sheet_vector,
)
from forerun.models.baselines.roofline import Roofline
from tests.devices import CATALOG
from tests.every import for_every

BOX = Device(name="my-box", vendor="nobody", kind="gpu")
SIZES = (256, 512, 1024, 2048, 4096, 8192)


def kernels(device):
    products = [Operator("matmul", "bmm", ((8, n, n), (8, n, n)), ((8, n, n),)) for n in SIZES]
    copies = [Operator("elementwise", "relu", ((64, n, n),), ((64, n, n),)) for n in SIZES]
    return [Query(Kernel(op), device) for op in (*products, *copies)]


def measured(device, efficiency=1.25, noise=0.1, seed=0):
    """Times that a device might show: rooflines, a constant efficiency, noise."""
    queries = kernels(device)
    bound = Roofline().predict(queries).values["latency_ms"]
    noisy = np.exp(noise * np.random.default_rng(seed).normal(size=len(queries)))
    return Measurements(queries, {"latency_ms": (bound * efficiency + 0.018) * noisy})


@for_every("device", [d for d in CATALOG if d.kind == "gpu"])
def test_what_a_sheet_gives_is_exact_and_what_it_lacks_is_unsure(device):
    found, given = embedding(device), sheet_vector(device)
    known = np.isfinite(given)
    np.testing.assert_allclose(found.mean[known], given[known])
    assert (found.deviation[known] < 1e-9).all()
    assert (found.deviation[~known] > 0.01).all()
    assert np.isfinite(found.mean).all()


@pytest.mark.parametrize("name", ["t4", "v100-pcie-32gb", "a100-pcie-80gb", "rtx-4090", "l4"])
def test_a_dozen_kernels_tell_bandwidth_and_peak_of_a_black_box(name):
    rows = measured(CATALOG.get(name))
    boxed = replace(rows, queries=[replace(q, device=BOX) for q in rows.queries])
    before, after = embedding(BOX), embedding(BOX, boxed)
    truth = sheet_vector(CATALOG.get(name))
    for figure in ("memory_bandwidth_gbs", "fp32_tflops"):
        place = FIGURES.index(figure)
        assert abs(after.mean[place] - truth[place]) < 2.5 * after.deviation[place] + 0.05
        assert after.deviation[place] < 0.6 * before.deviation[place]


def test_one_strange_row_does_not_decide():
    rows = measured(CATALOG.get("v100-pcie-32gb"))
    values = rows.values["latency_ms"].copy()
    values[0] *= 50
    strange = replace(rows, values={"latency_ms": values})
    plain, odd = embedding(BOX, rows), embedding(BOX, strange)
    place = FIGURES.index("memory_bandwidth_gbs")
    assert abs(plain.mean[place] - odd.mean[place]) < 0.25


def test_rows_without_a_time_say_nothing():
    rows = measured(CATALOG.get("t4"))
    silent = replace(rows, values={"latency_ms": np.full(len(rows), np.nan)})
    np.testing.assert_allclose(embedding(BOX, silent).mean, embedding(BOX).mean)


def test_an_estimated_sheet_keeps_what_was_given_and_marks_the_rest():
    half = Device(name="my-box", vendor="nobody", kind="gpu", tdp_w=72, memory_gib=24)
    found = estimated_sheet(half, measured(CATALOG.get("l4")))
    assert found.has_sheet
    assert (found.tdp_w, found.memory_gib, found.name) == (72, 24, "my-box")
    assert "tdp_w" not in found.sources
    assert found.sources["memory_bandwidth_gbs"] == "derived: estimated from 12 measurements"
    assert any("estimated from 12 measurements" in line for line in found.caveats)
    low, high = embedding(half, measured(CATALOG.get("l4"))).figure("memory_bandwidth_gbs")[1:]
    assert low < found.bandwidth_gbs < high


def test_the_same_seed_gives_the_same_sheet():
    rows = measured(CATALOG.get("l4"))
    assert estimated_sheet(BOX, rows) == estimated_sheet(BOX, rows)


def test_a_box_slower_than_any_in_the_catalogue_still_gets_a_sheet():
    box = Device(name="slow-box", vendor="nobody", kind="npu")
    queries = kernels(box)
    slow = Measurements(queries, {"latency_ms": np.full(len(queries), 1e6)})
    assert estimated_sheet(box, slow).compute_units == 1


def networks(device):
    """Networks of one product and one copy at many sizes, which a device may show."""
    graphs = []
    for n in SIZES:
        product = Operator("matmul", "bmm", ((8, n, n), (8, n, n)), ((8, n, n),))
        copy = Operator("elementwise", "relu", ((64, n, n),), ((64, n, n),), inputs=(0,))
        graphs += [OperatorGraph((product,)), OperatorGraph((copy,)), OperatorGraph((copy,) * 2)]
    graphs = [
        replace(g, operators=tuple(replace(o, inputs=()) for o in g.operators)) for g in graphs
    ]
    return [Query(Network(g, 1), device) for g in graphs]


@pytest.mark.parametrize(("ask", "slower"), [(kernels, 1.25), (networks, 1.4)])
def test_a_sheet_is_not_taken_for_less_because_no_kernel_reaches_its_figures(ask, slower):
    """Kernels take 1.25 times their rooflines (NeuSight), networks 1.4 times (timm).

    Devices typical in this are given their own bandwidth and peak, on the mean over many.
    """
    gpus = [d for d in CATALOG if d.kind == "gpu" and np.isfinite(sheet_vector(d)[:3]).all()]
    figures = [FIGURES.index("memory_bandwidth_gbs"), FIGURES.index("fp32_tflops")]
    residuals = []
    for device in gpus[::3]:
        queries = ask(device)
        launch = LAUNCH_MS[queries[0].run.kind]
        times = slower * Roofline().predict(queries).values["latency_ms"] + launch
        boxed = [replace(query, device=BOX) for query in queries]
        found = embedding(BOX, Measurements(boxed, {"latency_ms": times}))
        residuals.append((found.mean - sheet_vector(device))[figures])
    np.testing.assert_allclose(np.mean(residuals, axis=0), 0.0, atol=0.08)


def test_products_of_half_precision_tell_the_peak_of_matrix_units():
    """All figures of a V100 but that of its tensor cores, and six large products."""
    v100 = CATALOG.get("v100-pcie-32gb")
    bare = v100.model_copy(update={"peak_tflops": {"fp32": 14.0}})
    products = [Operator("matmul", "bmm", ((8, n, n), (8, n, n)), ((8, n, n),)) for n in SIZES[3:]]
    queries = [Query(Kernel(op, "fp16"), v100) for op in products]
    bound = Roofline().predict(queries).values["latency_ms"]
    rows = Measurements(
        [replace(q, device=bare) for q in queries], {"latency_ms": 1.25 * bound + 0.018}
    )
    before, after = (embedding(bare, m).figure("half_tflops") for m in (None, rows))
    assert abs(np.log(after[0] / 112)) < 0.4
    assert after[2] / after[1] < before[2] / before[1]
