"""Features of operators, against counts by hand of what a kernel does."""

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator
from forerun.features.operators.features import (
    FEATURES,
    LAUNCH_MS,
    START_MS,
    operator_features,
)
from forerun.features.operators.kinds import KIND_CODE
from forerun.features.operators.table import OperatorTable

CATALOG = DeviceCatalog.load()
A100 = CATALOG.get("a100-sxm-80gb")


def feature(kind: str, width: int, name: str, rows: int = 4096) -> float:
    """One feature of `rows` rows of this width."""
    table = OperatorTable.of([Operator(kind, kind, ((rows, width),), ((rows, width),))])
    matrix = operator_features(table, A100, "fp32", kind).features
    return float(matrix[0, FEATURES[kind].index(name)])


@pytest.mark.parametrize(
    ("width", "fill"), [(512, 1.0), (640, 1.25 / 2), (1024, 1.0), (128, 0.25), (1536, 1.0)]
)
def test_layer_norm_reads_four_elements_in_each_of_128_threads(width: int, fill: float) -> None:
    assert feature("layer_norm", width, "lane_fill") == pytest.approx(fill)


@pytest.mark.parametrize(("width", "fill"), [(32, 1.0), (48, 0.75), (1024, 1.0), (700, 700 / 1024)])
def test_softmax_of_short_rows_is_one_warp_a_row(width: int, fill: float) -> None:
    assert feature("softmax", width, "lane_fill") == pytest.approx(fill)
    assert feature("softmax", width, "iterations") == 0.0


@pytest.mark.parametrize(("width", "block"), [(2048, 256), (4096, 512), (16384, 512), (1536, 256)])
def test_softmax_of_long_rows_is_one_block_of_up_to_512_threads(width: int, block: int) -> None:
    steps = width / 4 / block
    assert feature("softmax", width, "iterations") == min(np.ceil(steps), 8)
    assert feature("softmax", width, "lane_fill") == pytest.approx(steps / np.ceil(steps))


def test_a_tile_also_reads_its_borders() -> None:
    """One full wave of tiles of 128 x 128 on 108 units: 16 / 128 more for rows and for columns."""
    assert A100.compute_units == 108
    product = Operator("linear", "aten.mm", ((108 * 128, 512),), ((108 * 128, 128),), 512 * 128)
    matrix = operator_features(OperatorTable.of([product]), A100, "fp16", "product").features
    best = matrix[0, FEATURES["product"].index("log_best_tile")]
    assert np.exp(best) == pytest.approx(1 + 16 / 128 + 16 / 128)


def product_features(m: int, n: int, k: int, family: str = "product") -> dict[str, float]:
    """Features of one product of half precision on an A100, by name."""
    product = Operator("linear", "aten.mm", ((m, k),), ((m, n),), n * k)
    found = operator_features(OperatorTable.of([product]), A100, "fp16", family)
    named = dict(zip(FEATURES[family], found.features[0].tolist(), strict=True))
    base_ms = 1e3 * (found.parallel_s[0, 0] + found.start_s[0]) + LAUNCH_MS * found.launch[0]
    return named | {"base_ms": base_ms, "power_ms": 1e3 * found.power_s[0]}


def test_alignment_counts_the_powers_of_two_that_divide_a_side() -> None:
    """200 = 2^3 x 25, 96 = 2^5 x 3, 256 by all up to 128."""
    found = product_features(200, 96, 256)
    assert [found[f"align_{side}"] for side in "mnk"] == [3.0, 5.0, 7.0]


def test_a_large_aligned_product_takes_its_arithmetic_and_one_launch() -> None:
    """64 full waves of 256 x 128: borders cost 16/256 + 16/128 more than the peak."""
    found = product_features(108 * 256, 64 * 128, 4096)
    peak_ms = 2 * 108 * 256 * 64 * 128 * 4096 / 312e12 * 1e3
    assert found["base_ms"] == pytest.approx(peak_ms * (1 + 16 / 256 + 16 / 128), rel=0.01)
    tiny_ms = product_features(1, 1, 1)["base_ms"]
    assert tiny_ms == pytest.approx(START_MS[KIND_CODE["linear"]], rel=0.05), "from a full queue"
    assert found["power_ms"] >= peak_ms


def test_only_what_was_timed_by_events_has_their_launch() -> None:
    """Products in fp32; in other formats, and of other kinds, a kernel starts from a full queue."""
    large = Operator("linear", "aten.mm", ((8192, 8192),), ((8192, 8192),), 8192**2)
    table = OperatorTable.of([large])
    timed, other = (operator_features(table, A100, name, "product") for name in ("fp32", "fp16"))
    assert (timed.launch[0], timed.start_s[0]) == (1.0, 0.0)
    assert other.launch[0] == 0.0
    assert other.start_s[0] == pytest.approx(3.5e-6)


def test_one_element_a_thread_takes_the_same_time_in_16_bits() -> None:
    """An A100 has 108 units at 1,410 MHz, each of which moves 1.4 elements in a cycle."""
    shape = (64, 256, 56, 56)
    table = OperatorTable.of([Operator("batch_norm", "", (shape,), (shape,))])
    times = [
        operator_features(table, A100, name, "elementwise").parallel_s[0, 0]
        for name in ("fp32", "fp16")
    ]
    expected = 2 * 64 * 256 * 56 * 56 / (1.4 * 108 * 1.41e9)
    assert times == pytest.approx([expected, expected])


@pytest.mark.parametrize(("name", "threads"), [("t4", 1024), ("rtx-4090", 1536), ("h100", 2048)])
def test_threads_resident_on_a_unit_are_those_of_cuda_s_table(name: str, threads: int) -> None:
    """Maximum resident threads per multiprocessor, CUDA C++ Programming Guide; 128 a row."""
    table = OperatorTable.of([Operator("layer_norm", "", ((64, 1024),), ((64, 1024),))])
    found = operator_features(table, CATALOG.get(name), "fp32", "layer_norm").features[0]
    live_kib = np.exp(found[FEATURES["layer_norm"].index("log_live_per_unit")])
    assert live_kib == pytest.approx(threads / 128 * 1024 * 4 / 1024)


def test_rows_that_fit_the_cache_are_not_read_again() -> None:
    assert feature("softmax", 2048, "log_traffic") == 0.0
    assert feature("layer_norm", 256, "log_traffic") == 0.0
    again = feature("softmax", 2**20, "log_traffic", rows=64)
    assert again == pytest.approx(np.log(2)), "a whole second read"


def test_widths_are_aligned_in_fours() -> None:
    assert [
        feature(kind, w, "align_4") for kind in ("softmax", "layer_norm") for w in (64, 66)
    ] == [
        1.0,
        0.0,
        1.0,
        0.0,
    ]
