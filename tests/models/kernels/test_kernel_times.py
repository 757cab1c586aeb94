"""KernelTimes: bounds and corrections by hand, the tables of a run, and clipped features."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forerun.data.query import Query
from forerun.data.software import Software
from forerun.features.kernels.rows import (
    FEATURES,
    KERNEL_ROOTS,
    ROLES,
    ROOT_OF_KERNEL_KIND,
    KernelRows,
)
from forerun.features.lowering.kernels import KERNEL_KINDS
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
from tests.models.networks.test_device_time import (
    RUNTIMES,
    STRANGER,
    TRAINING_GPUS,
    ask,
    kernel,
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


def bounds(compute_s: float, memory_s: float) -> KernelRows:
    (one,) = [KernelRows.of([kernel(TRAINING_GPUS[0], 64, 64)])]
    return replace(one, compute_s=np.array([compute_s]), memory_s=np.array([memory_s]))


def test_corrections_are_limited_either_way() -> None:
    rows = bounds(1e-3, 0.0)
    far = [
        seconds_of(rows, np.full((1, HEADS), log))[0] for log in (-50.0, -LARGEST_LOG, 4.0, 50.0)
    ]
    assert far[0] == far[1] == pytest.approx((1e-3 + SHORTEST_S) * np.exp(-4.0))
    assert far[2] == far[3] == pytest.approx((1e-3 + SHORTEST_S) * np.exp(4.0))


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
