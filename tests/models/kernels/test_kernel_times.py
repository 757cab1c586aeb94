"""KernelTimes: bounds and corrections by hand, the tables of a run, and clipped features."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forerun.data.graph import OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network
from forerun.features.kernels.rows import (
    FEATURES,
    KERNEL_ROOTS,
    ROLES,
    ROOT_OF_KERNEL_KIND,
    KernelRows,
)
from forerun.features.lowering.kernels import KERNEL_KINDS
from forerun.models.artifact.stored_predictor import load_part
from forerun.models.domain.feature_range import sheet
from forerun.models.kernels.kernel_times import (
    CONTEXTS,
    FORMATS,
    HEADS,
    LARGEST_LOG,
    MODES,
    SHORTEST_S,
    TABLES,
    UNKNOWN,
    KernelTimes,
    run_codes,
    seconds_of,
)
from forerun.models.networks.device_time import DeviceTime
from tests.models.networks.test_device_time import (
    RUNTIMES,
    STRANGER,
    TRAINING_GPUS,
    ask,
    kernel,
    operator,
)

EAGER, COMPILED = RUNTIMES
HIDDEN = 5
SIZES = {
    "kind": len(KERNEL_KINDS),
    "role": len(ROLES),
    "mode": len(MODES),
    "format": len(FORMATS),
    "context": len(CONTEXTS),
    "device": len(TRAINING_GPUS) + 1,
}


@cache
def drawn() -> KernelTimes:
    """Weights drawn at random, of two devices."""
    random = np.random.default_rng(7)

    def normal(*shape: int) -> np.ndarray:
        return random.normal(0.0, 0.4, shape)

    inputs, roots = len(FEATURES), len(KERNEL_ROOTS)
    return KernelTimes(
        mean=normal(inputs),
        scale=np.exp(normal(inputs)),
        lowest=normal(roots, inputs) - 5.0,
        highest=normal(roots, inputs) + 12.0,
        first=normal(inputs, HIDDEN) / 3.0,
        second=normal(HIDDEN, HIDDEN),
        last=normal(HIDDEN, HEADS),
        bias=normal(HIDDEN),
        tables={name: normal(size, HIDDEN + HEADS) for name, size in SIZES.items()},
        devices=tuple(map(sheet, TRAINING_GPUS)),
    )


def step(device=TRAINING_GPUS[0]) -> Query:
    query = ask(device, 64, 3, 32, EAGER)
    return replace(query, workload=replace(query.network, phase="training"))


def asked() -> list[Query]:
    return [
        ask(TRAINING_GPUS[0], 48, 3, 64, EAGER),
        ask(TRAINING_GPUS[1], 64, 1, 8, COMPILED, "fp32"),
        step(STRANGER),
        kernel(TRAINING_GPUS[1], 512, 256),
    ]


def with_table(name: str, change: Callable[[np.ndarray], np.ndarray]) -> KernelTimes:
    return replace(drawn(), tables=drawn().tables | {name: change(drawn().tables[name].copy())})


def bounds(compute_s: float, memory_s: float) -> KernelRows:
    (one,) = [KernelRows.of([kernel(TRAINING_GPUS[0], 64, 64)])]
    return replace(one, compute_s=np.array([compute_s]), memory_s=np.array([memory_s]))


@pytest.mark.parametrize(
    ("compute_us", "memory_us", "factors", "expected_us"),
    [
        (0.0, 0.0, (1.0, 1.0, 1.0), 2.0),
        (3.0, 4.0, (1.0, 1.0, 1.0), 7.0),
        (3.0, 4.0, (2.0, 1.0, 1.0), 52**0.5 + 2.0),
        (3.0, 4.0, (1.0, 2.0, 1.0), 73**0.5 + 2.0),
        (3.0, 4.0, (1.0, 1.0, 2.0), 9.0),
        (1e6, 0.0, (1.0, 3.0, 1.0), 1e6 + 2.0),
    ],
)
def test_seconds_are_the_norm_of_both_bounds_and_a_shortest_time(
    compute_us, memory_us, factors, expected_us
) -> None:
    rows = bounds(1e-6 * compute_us, 1e-6 * memory_us)
    found = seconds_of(rows, np.log([factors]))
    assert 1e6 * found[0] == pytest.approx(expected_us)


def test_corrections_are_limited_either_way() -> None:
    rows = bounds(1e-3, 0.0)
    far = [
        seconds_of(rows, np.full((1, HEADS), log))[0] for log in (-50.0, -LARGEST_LOG, 4.0, 50.0)
    ]
    assert far[0] == far[1] == pytest.approx((1e-3 + SHORTEST_S) * np.exp(-4.0))
    assert far[2] == far[3] == pytest.approx((1e-3 + SHORTEST_S) * np.exp(4.0))


def test_seconds_grow_where_only_a_bound_grows() -> None:
    rows = KernelRows.of(asked())
    random = np.random.default_rng(0)
    logs = random.normal(0.0, 2.0, (len(rows), HEADS))
    before = seconds_of(rows, logs)
    assert (before > 0).all()
    for name in ("compute_s", "memory_s"):
        more = replace(rows, **{name: 1.5 * getattr(rows, name) + 1e-6})
        assert (seconds_of(more, logs) > before).all()


def test_seconds_of_a_run_are_the_sum_over_launches() -> None:
    queries, rows = asked(), KernelRows.of(asked())
    each = drawn().kernel_seconds(queries, rows)
    assert rows.count.max() > 1
    for run in range(len(queries)):
        own = rows.owner == run
        whole = drawn().seconds(queries)[run]
        assert whole == pytest.approx(float((each * rows.count)[own].sum()))
        assert drawn().seconds([queries[run]])[0] == pytest.approx(whole, rel=1e-9)


def test_seconds_agree_with_torch() -> None:
    torch = pytest.importorskip("torch")
    times, queries = drawn(), asked()
    rows = KernelRows.of(queries)
    codes = {
        "kind": rows.kind,
        "role": rows.role,
        **dict(zip(TABLES[2:], run_codes(queries, times.devices)[rows.owner].T, strict=True)),
    }
    shift = sum(torch.tensor(times.tables[name][code]) for name, code in codes.items())
    roots = ROOT_OF_KERNEL_KIND[rows.kind]
    low, high = torch.tensor(times.lowest[roots]), torch.tensor(times.highest[roots])
    x = torch.tensor(rows.features.astype(np.float64)).maximum(low).minimum(high)
    x = (x - torch.tensor(times.mean)) / torch.tensor(times.scale)
    silu = torch.nn.functional.silu
    hidden = silu(x @ torch.tensor(times.first) + shift[:, :HIDDEN])
    hidden = silu(hidden @ torch.tensor(times.second) + torch.tensor(times.bias))
    factors = (hidden @ torch.tensor(times.last) + shift[:, HIDDEN:]).clamp(-4.0, 4.0).exp()
    compute, memory = torch.tensor(rows.compute_s), torch.tensor(rows.memory_s)
    seconds = torch.hypot(compute * factors[:, 0], memory * factors[:, 1]) + 2e-6 * factors[:, 2]
    np.testing.assert_allclose(times.kernel_seconds(queries, rows), seconds.numpy(), rtol=1e-9)


def test_codes_name_mode_format_context_and_device() -> None:
    nhwc = Software(version="2.4.0", layout="nhwc")
    cpu = STRANGER.model_copy(update={"kind": "cpu"})
    queries = [
        ask(TRAINING_GPUS[0], 16, 1, 8, EAGER, "fp32"),
        ask(TRAINING_GPUS[1], 16, 1, 8, COMPILED, "tf32"),
        ask(STRANGER, 16, 1, 8, nhwc, "bf16"),
        ask(cpu, 16, 1, 8, COMPILED, "amp"),
        kernel(TRAINING_GPUS[1], 64, 64),
    ]
    names = [
        (MODES[mode], FORMATS[form], CONTEXTS[context], device)
        for mode, form, context, device in run_codes(queries, drawn().devices)
    ]
    assert names == [
        ("eager", "fp32", "network", 1),
        ("compiled", "tf32", "network", 2),
        ("eager_nhwc", "half", "network", UNKNOWN),
        ("cpu", "half", "network", UNKNOWN),
        ("eager", "half", "operator", 2),
    ]


@pytest.mark.parametrize("name", TABLES)
def test_each_table_matters_where_its_row_is_asked(name: str) -> None:
    before = drawn().seconds(asked())
    after = with_table(name, lambda table: table + 0.3).seconds(asked())
    assert (np.abs(np.log(after / before)) > 1e-3).all()


def test_a_device_without_rows_is_answered_by_the_row_of_unknown_ones() -> None:
    queries = [replace(query, device=STRANGER) for query in asked()]

    def others(table: np.ndarray) -> np.ndarray:
        table[UNKNOWN + 1 :] += 1.0
        return table

    def unknown(table: np.ndarray) -> np.ndarray:
        table[UNKNOWN] += 1.0
        return table

    before = drawn().seconds(queries)
    np.testing.assert_array_equal(with_table("device", others).seconds(queries), before)
    assert (with_table("device", unknown).seconds(queries) != before).all()
    known = [replace(query, device=TRAINING_GPUS[1]) for query in asked()]
    same = with_table("device", unknown).seconds(known)
    np.testing.assert_array_equal(same, drawn().seconds(known))


def test_a_device_is_known_by_its_sheet_and_not_by_its_name() -> None:
    renamed = TRAINING_GPUS[0].model_copy(update={"name": "other", "title": "Other"})
    queries = [ask(device, 48, 3, 64, EAGER) for device in (TRAINING_GPUS[0], renamed)]
    one, other = drawn().seconds(queries)
    assert one == other


def test_a_kernel_alone_and_in_a_network_differs_by_the_context_only() -> None:
    alone = kernel(TRAINING_GPUS[0], 512, 256)
    graph = OperatorGraph((operator(512, 256),))
    inside = replace(alone, workload=Network(graph, 1, "fp16"))
    assert isinstance(alone.run, Kernel)
    one, other = drawn().seconds([alone, inside])
    assert one != other
    without = with_table("context", np.zeros_like)
    one, other = without.seconds([alone, inside])
    assert one == pytest.approx(other, rel=1e-12)


def test_features_beyond_the_training_kernels_of_a_root_count_as_the_nearest_of_them() -> None:
    queries = asked()
    rows = KernelRows.of(queries)
    roots = ROOT_OF_KERNEL_KIND[rows.kind]
    times = replace(drawn(), lowest=np.full_like(drawn().lowest, -9.0), highest=drawn().highest * 0)
    edge = replace(rows, features=np.clip(rows.features, -9.0, 0.0))
    beyond = replace(rows, features=np.where(rows.features > 0, 1e6, rows.features))
    for other in (edge, beyond):
        np.testing.assert_allclose(
            times.kernel_seconds(queries, other), times.kernel_seconds(queries, rows)
        )
    narrower = times.highest.copy()
    narrower[roots[0]] -= 1.0
    changed = replace(times, highest=narrower).kernel_seconds(queries, rows)
    moved = changed != times.kernel_seconds(queries, rows)
    np.testing.assert_array_equal(moved, roots == roots[0])


def test_stored_times_are_the_same_to_the_last_digit(tmp_path) -> None:
    DeviceTime(kernel_times=drawn()).save(tmp_path / "part")
    loaded = load_part(tmp_path / "part")
    assert isinstance(loaded, DeviceTime)
    np.testing.assert_array_equal(loaded.kernel_times.seconds(asked()), drawn().seconds(asked()))
