"""The fit recovers planted times of kernels from times of whole runs, the same at every call."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forerun.data.query import Query
from forerun.features.kernels.rows import ROOT_OF_KERNEL_KIND, KernelRows
from forerun.features.lowering.kernels import IS_PRODUCT
from forerun.models.kernels import fitting
from forerun.models.kernels.fitting import Settings, _Fit, _ranges, fit
from forerun.models.kernels.kernel_times import KernelTimes
from tests.models.networks.test_device_time import (
    RUNTIMES,
    SIZES,
    STRANGER,
    TRAINING_GPUS,
    ask,
    kernel,
)

torch = pytest.importorskip("torch")

EAGER, COMPILED = RUNTIMES
SHORT = Settings(epochs=2, hidden=8)


def trained(query: Query) -> Query:
    return replace(query, workload=replace(query.network, phase="training"))


@cache
def runs() -> list[Query]:
    """Networks of several sizes, training steps, and operators alone, on two GPUs."""
    networks = [
        ask(device, w, d, batch, software)
        for device in TRAINING_GPUS
        for w, d in SIZES
        for batch in (8, 256)
        for software in RUNTIMES
    ]
    steps = [
        trained(ask(device, w, d, 64, EAGER)) for device in TRAINING_GPUS for w, d in SIZES[::2]
    ]
    alone = [
        kernel(device, rows, columns, is_product)
        for device in TRAINING_GPUS
        for rows in (512, 4096, 65536)
        for columns in (64, 256, 1024)
        for is_product in (True, False)
    ]
    return [*networks, *steps, *alone]


@cache
def kernels() -> KernelRows:
    return KernelRows.of(runs())


def planted(rows: KernelRows) -> np.ndarray:
    """Products reach 50 % of their peak; all kernels 80 % of the bandwidth; 3 us more for each."""
    efficiency = np.where(IS_PRODUCT[rows.kind], 0.5, 1.0)
    return np.hypot(rows.compute_s / efficiency, rows.memory_s / 0.8) + 3e-6


def sums(rows: KernelRows, each: np.ndarray) -> np.ndarray:
    return np.bincount(rows.owner, each * rows.count).astype(np.float64)


def fitted(seconds: np.ndarray, **options: object) -> KernelTimes:
    options = {"settings": SHORT, "weights": np.ones(len(runs()))} | options
    return fit(runs(), kernels(), seconds, **options)  # type: ignore[arg-type]


def true_seconds() -> np.ndarray:
    return sums(kernels(), planted(kernels()))


@cache
def recovered() -> KernelTimes:
    return fitted(true_seconds(), settings=Settings(epochs=40))


def test_planted_efficiencies_are_recovered_from_sums() -> None:
    error = np.log(recovered().seconds(runs(), kernels()) / true_seconds())
    assert np.abs(error).mean() < 0.02
    assert np.quantile(np.abs(error), 0.95) < 0.06


def test_times_of_single_kernels_are_recovered_though_only_sums_are_measured() -> None:
    rows = kernels()
    each = recovered().kernel_seconds(runs(), rows)
    error = np.abs(np.log(each / planted(rows)))
    share = each * rows.count / sums(rows, each * 1.0)[rows.owner]
    assert np.average(error, weights=share) < 0.06


def test_efficiencies_carry_over_to_other_networks_and_to_another_device() -> None:
    fresh = [
        ask(device, w, d, 64, software)
        for device in (*TRAINING_GPUS, STRANGER)
        for w, d in ((32, 2), (80, 4))
        for software in RUNTIMES
    ]
    rows = KernelRows.of(fresh)
    found = recovered().seconds(fresh, rows) / sums(rows, planted(rows))
    np.testing.assert_allclose(found, 1.0, atol=0.1)


def test_a_device_that_is_slow_as_a_whole_is_learnt_as_such() -> None:
    """The row of unknown devices lies between both."""
    slow = np.array([query.device is TRAINING_GPUS[1] for query in runs()])
    times = fitted(true_seconds() * np.where(slow, 1.6, 1.0), settings=Settings(epochs=40))
    error = np.log(times.seconds(runs(), kernels()) / true_seconds())
    assert np.median(error[slow]) == pytest.approx(np.log(1.6), abs=0.05)
    assert np.median(error[~slow]) == pytest.approx(0.0, abs=0.05)


def test_the_loss_of_the_fit_is_that_of_the_stored_times(monkeypatch) -> None:
    """What is minimised in torch is what is answered in NumPy: same weights, same errors."""
    monkeypatch.setattr(fitting, "PENALTIES", {})
    monkeypatch.setattr(fitting, "WEIGHT_PENALTY", 0.0)
    monkeypatch.setattr(fitting, "FLOOR_PENALTY", 0.0)
    monkeypatch.setattr(fitting, "UNKNOWN_SHARE", 0.0)
    weights = np.linspace(0.5, 2.0, len(runs()))
    own = _Fit(torch, runs(), kernels(), true_seconds(), weights, 3, SHORT, None)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in own.parameters:
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    batch = np.random.default_rng(0).permutation(len(runs()))[:50]
    loss = float(own._loss(batch, np.random.default_rng(0)).detach())
    error = np.abs(np.log(own._fitted().seconds(runs(), kernels()) / true_seconds()))[batch]
    huber = np.where(error < fitting.HUBER, error**2 / 2 / fitting.HUBER, error - fitting.HUBER / 2)
    assert loss == pytest.approx((huber * weights[batch] / weights.mean()).mean(), rel=1e-4)


def test_runs_of_a_hidden_device_are_those_of_an_unknown_one(monkeypatch) -> None:
    """With every device hidden, its own row is never fitted."""
    monkeypatch.setattr(fitting, "UNKNOWN_SHARE", 1.0)
    times = fitted(true_seconds())
    table = times.tables["device"]
    assert np.abs(table[0]).max() > 0
    assert np.abs(table[1:]).max() == 0.0


def test_two_fits_with_one_seed_are_equal_and_with_another_are_not() -> None:
    one, same, other = (fitted(true_seconds(), seed=seed).seconds(runs()) for seed in (4, 4, 5))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_the_first_weights_are_those_of_the_seed() -> None:
    weights = np.ones(len(runs()))
    first = [
        _Fit(torch, runs(), kernels(), true_seconds(), weights, seed, SHORT, None).first.detach()
        for seed in (4, 4, 5)
    ]
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])


def test_the_number_of_threads_of_torch_is_as_before() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        fitted(true_seconds(), settings=Settings(epochs=1, hidden=4))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("option", ["share", "weights"])
def test_runs_without_a_share_or_a_weight_say_nothing(option: str) -> None:
    left_out = np.arange(len(runs())) % 3 == 0
    spoilt = np.where(left_out, 0.02, 1.0) * true_seconds()
    how = {option: np.where(left_out, 0.0, 1.0)}
    one, other = (fitted(seconds, **how).seconds(runs()) for seconds in (true_seconds(), spoilt))
    np.testing.assert_allclose(one, other, rtol=1e-6)
    assert (np.abs(np.log(fitted(spoilt).seconds(runs()) / one)) > 0.003).any()


def test_a_share_is_that_of_the_epochs_in_which_a_run_takes_part() -> None:
    share = np.where(np.arange(len(runs())) % 2 == 0, 0.25, 1.0)
    weights = np.ones(len(runs()))
    own = _Fit(torch, runs(), kernels(), true_seconds(), weights, 0, SHORT, share)
    random = np.random.default_rng(0)
    taken = np.zeros(len(runs()))
    for _ in range(200):
        epoch = np.concatenate(own._batches(random))
        assert len(set(epoch.tolist())) == len(epoch)
        taken[epoch] += 1
    assert (taken[share == 1.0] == 200).all()
    assert taken[share < 1.0].mean() == pytest.approx(50, abs=4)


def test_ranges_are_of_each_root_and_of_all_kernels_for_a_root_without() -> None:
    features = np.array([[0.0], [10.0], [100.0]])
    lowest, highest = _ranges(features, np.array([2, 2, 5]))
    assert lowest[2, 0] == pytest.approx(0.0, abs=0.1)
    assert highest[2, 0] == pytest.approx(10.0, abs=0.1)
    assert lowest[5, 0] == highest[5, 0] == 100.0
    assert lowest[0, 0] == pytest.approx(0.0, abs=0.1)
    assert highest[0, 0] == pytest.approx(100.0, abs=1.0)


def test_the_fit_keeps_the_devices_and_the_ranges_of_its_runs() -> None:
    times = fitted(true_seconds())
    assert len(times.devices) == len(TRAINING_GPUS)
    roots = ROOT_OF_KERNEL_KIND[kernels().kind]
    lowest, highest = _ranges(kernels().features, roots)
    np.testing.assert_array_equal(times.lowest, lowest)
    np.testing.assert_array_equal(times.highest, highest)
    assert (kernels().features <= highest[roots] + 1e-6).mean() > 0.97
