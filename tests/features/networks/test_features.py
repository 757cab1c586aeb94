"""Features of whole networks: shares, bounds, and what a device may say."""

import numpy as np
import pytest

from forerun.data.device import Device, DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.features.chips import (
    DEVICE_RATIOS,
    NETWORK_FEATURES,
    Chip,
    _intensities,
    assumed,
    chip_of,
    device_ratios,
    kind_seconds,
    network_features,
)
from forerun.features.lowering import Kernels, lower, lowering_mode
from forerun.features.lowering.kernel_kinds import KERNEL_CLASSES, KERNEL_CODE
from forerun.features.lowering.kernels import Launch, launch

SOFTWARE = Software(version="2.4.0")
CHIP = Chip(100e12, 100e12, 25e12, 1e12, 100.0, 2**24, is_cpu=False)
LAYER = (16, 256)


def kernels() -> Kernels:
    ops: list[Operator] = []
    for i in range(4):
        before = (2 * i - 1,) if i else ()
        ops.append(Operator("linear", "aten.addmm", (LAYER,), (LAYER,), 256 * 257, {}, before))
        gelu = {"function": "gelu"}
        ops.append(Operator("elementwise", "aten.gelu", (LAYER,), (LAYER,), 0, gelu, (2 * i,)))
    graph = OperatorGraph(tuple(ops), source="torch_export")
    return next(lower(graph, (lowering_mode(graph, "amp", SOFTWARE),)))


Row = tuple[dict[str, float], float]


def row(batch: int, chip: Chip = CHIP, found: Kernels | None = None) -> Row:
    network = Network(OperatorGraph(()), batch, "amp")
    values, seconds = network_features(
        kernels() if found is None else found, chip, network, SOFTWARE
    )
    assert values.shape == (len(NETWORK_FEATURES),)
    return dict(zip(NETWORK_FEATURES, values.tolist(), strict=True)), seconds


def test_names_are_distinct() -> None:
    assert len(set(NETWORK_FEATURES)) == len(NETWORK_FEATURES)


@pytest.mark.parametrize("batch", [1, 64, 4096])
def test_class_shares_add_up_to_one_and_others_stay_inside(batch: int) -> None:
    values, _ = row(batch)
    assert sum(values[f"share_{name}"] for name in KERNEL_CLASSES) == pytest.approx(1.0)
    for name in ("compute_bound_share", "in_l2_share", "wave_fill", "aligned_8", "aligned_64"):
        assert 0.0 <= values[name] <= 1.0 + 1e-9


def test_the_bound_grows_with_the_batch_and_no_faster() -> None:
    seconds = [row(batch)[1] for batch in (1, 2, 64, 128, 8192, 16384)]
    assert seconds == sorted(seconds)
    assert seconds[5] / seconds[4] == pytest.approx(2.0, rel=0.05)
    assert seconds[1] / seconds[0] < 2.0


def test_the_bound_is_that_of_the_kinds_or_more() -> None:
    """Each kernel is bound by itself, so their sum is never below the sum over kinds."""
    compute, memory, launches = kind_seconds(kernels(), CHIP, 64.0)
    assert row(64)[1] >= np.maximum(compute, memory).sum() * (1 - 1e-9)
    assert launches.sum() == kernels().launches


def test_a_device_twice_as_fast_in_everything_only_changes_what_launches_weigh() -> None:
    twice = Chip(200e12, 200e12, 50e12, 2e12, 100.0, 2**24, is_cpu=False)
    (one, slow), (two, fast) = row(64), row(64, twice)
    assert slow / fast == pytest.approx(2.0)
    differing = {name for name in one if not np.isclose(one[name], two[name])}
    assert differing == {"log_launch_over_roofline"}


def test_a_network_without_kernels_has_finite_features() -> None:
    values, seconds = row(1, found=Kernels.of((), 1.0, 0.0, 0))
    assert np.isfinite(list(values.values())).all()
    assert seconds > 0


def test_missing_figures_are_estimated_and_named() -> None:
    bare = Device(
        name="bare",
        vendor="nobody",
        kind="gpu",
        memory_bandwidth_gbs=1000,
        peak_tflops={"fp32": 20, "fp16": 80},
    )
    chip = chip_of(bare, "amp")
    assert chip.units > 1
    assert chip.l2_bytes > 0
    assert assumed(bare) == ("compute_units", "l2_mib", "tdp_w", "process_nm")
    assert device_ratios(chip).shape == (len(DEVICE_RATIOS),)


def test_half_precision_runs_on_matrix_units_and_fp32_does_not_on_geforce() -> None:
    device = DeviceCatalog.load().get("rtx-4090")
    assert chip_of(device, "amp").matrix == pytest.approx(
        2 * chip_of(device, "fp32").matrix, rel=0.05
    )
    assert chip_of(device, "amp").vector == chip_of(device, "fp32").vector


def test_a_power_limited_gpu_sustains_less_than_its_nominal_matrix_rate() -> None:
    """L40S: 205 to 253 TFLOP/s in bf16 of nominal 362 (AIConfigurator's GEMM tables)."""
    device = DeviceCatalog.load().get("l40s")
    assert 200e12 < chip_of(device, "bf16").matrix < 260e12


@pytest.mark.parametrize(("rows", "fill"), [(99 * 128, 0.99), (50 * 128, 0.5), (101 * 128, 0.505)])
def test_a_wave_fills_as_many_units_as_it_has_tiles(rows: int, fill: float) -> None:
    """A tile of 128 x 128 a unit: 100 units take 12,800 rows of 128 columns at once."""
    layer = Operator("linear", "aten.mm", ((rows, 64),), ((rows, 128),), 64 * 128)
    graph = OperatorGraph((layer,), source="torch_export")
    found = next(lower(graph, (lowering_mode(graph, "fp16", SOFTWARE),)))
    assert row(1, found=found)[0]["wave_fill"] == pytest.approx(fill, rel=0.01)


def test_quantiles_of_intensity_are_of_time_and_stop_where_kernels_only_move_bytes():
    compute, memory = np.array([1.0, 0.0, 4.0]), np.array([1.0, 1.0, 1.0])
    found = _intensities(compute, memory, np.array([0.3, 0.4, 0.3]))
    # 40 % of the time at the floor, 30 % balanced, 30 % with four times as much arithmetic.
    np.testing.assert_allclose(found, [-6.0, -6.0, 0.0, np.log(4.0), np.log(4.0)], atol=1e-6)


def two_kernels() -> Kernels:
    """A sample: a product of 256 x 384 x 192, and a function on 1 MB; batch sizes as they are."""
    product = Launch(
        KERNEL_CODE["linear/1/2/0"], work=2.0 * 256 * 384 * 192, traffic=3e5, fixed_traffic=2e5,
        m=256.0, n=384.0, k=192.0, groups=1.0, tensor=True,
    )  # fmt: skip
    return Kernels.of((product, launch("relu", 1e6, repeat=3.0)), 1.0, 5e5, 0)


def test_features_of_two_kernels_by_hand() -> None:
    """At batch 1 both are bound by memory: 0.5 and 3 MB at 1 TB/s."""
    values, seconds = row(1, found=two_kernels())
    assert seconds == pytest.approx(3.5e-6)
    product_s = 2 * 256 * 384 * 192 / 100e12
    tiles = 2 * 3
    expected = {
        "log_batch": 0.0,
        "log_launch_over_roofline": np.log(4 * 5e-6 / 3.5e-6),
        "log_launches": np.log(4),
        "compute_bound_share": 0.0,
        "fusible_share": 0.5 / 3.5,
        "in_l2_share": 1.0,
        "wave_fill": tiles / 100,
        "aligned_8": 1.0,
        "aligned_64": 1.0,
        "share_linear": 0.5 / 3.5,
        "share_elementwise": 3 / 3.5,
        "log_intensity_q90": np.log(product_s / 0.5e-6),
    }
    found = {name: values[name] for name in expected if name in values}
    assert len(found) >= 10
    assert found == pytest.approx({name: expected[name] for name in found}, rel=1e-3)


def test_a_large_batch_makes_the_product_compute_bound_and_leaves_the_cache() -> None:
    values, seconds = row(1010, found=two_kernels())
    product_s = 1010 * 2 * 256 * 384 * 192 / 100e12
    assert seconds == pytest.approx(product_s + 3.03e-3, rel=1e-6)
    assert values["compute_bound_share"] == pytest.approx(product_s / seconds)
    assert values["in_l2_share"] == 0.0
    waves = 2020 * 3 / 100
    assert values["wave_fill"] == pytest.approx(waves / np.ceil(waves), rel=1e-3)


def test_missing_units_and_clock_are_those_of_a_usual_gpu() -> None:
    """20 TFLOP/s of fp32, 256 operations a unit and cycle: near 52 units at 1.5 GHz."""
    bare = Device(
        name="bare", vendor="nobody", kind="gpu", memory_bandwidth_gbs=1000,
        peak_tflops={"fp32": 20, "fp16": 80},
    )  # fmt: skip
    chip = chip_of(bare, "amp")
    gpus = [d for d in DeviceCatalog.load() if d.kind == "gpu" and d.l2_mib and d.compute_units]
    assert chip.units == pytest.approx(20e12 / 1.5e9 / 256, rel=0.2)
    cache = np.median([d.l2_mib * 2**20 / d.compute_units for d in gpus])
    assert chip.l2_bytes / chip.units == pytest.approx(cache, rel=0.3)
    assert chip.bandwidth == 1e12
    assert (chip.vector, chip.is_cpu) == (20e12, False)
    assert np.exp(device_ratios(chip)[:2]) == pytest.approx(
        [chip.matrix / 1e12, chip.matrix / 20e12]
    )


def test_convolutions_of_fp32_runs_use_tf32_where_there_is_one() -> None:
    """As PyTorch's `cudnn.allow_tf32`: 156 of 19.5 TFLOP/s on an A100, of which 75 % last."""
    a100, v100 = (DeviceCatalog.load().get(n) for n in ("a100-sxm-80gb", "v100-pcie-32gb"))
    assert chip_of(a100, "fp32").conv == pytest.approx(0.75 * 156e12)
    assert chip_of(a100, "fp32").matrix == pytest.approx(19.5e12)
    assert chip_of(v100, "fp32").conv == chip_of(v100, "fp32").matrix
