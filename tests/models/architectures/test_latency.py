"""`ArchitectureLatency`: the contract of predictors, and few-shot adaptation to a device."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Architecture, Space
from forerun.features.nas_cells import features_of, random_codes
from forerun.models.architectures.latency import ArchitectureLatency, log_times, rounding_noise
from forerun.models.contract import PredictorContract
from tests.models.judged import errors, inside

KNOWN_DEVICES = ("launchy", "mathy", "between")
RATES = {"launchy": (0.3, 0.002), "mathy": (0.02, 0.05), "between": (0.1, 0.02)}


def device(name: str) -> Device:
    return Device(name=name, vendor="nobody", kind="gpu")


def truth_ms(space: Space, codes: np.ndarray, launch: float, rate: float) -> np.ndarray:
    """Times of launches and of arithmetic, at rates that differ by device."""
    features = features_of(space, codes)
    launches = features[:, 10] if space == "nb201" else features[:, 0] * 3
    macs = np.exp(features[:, 8 if space == "nb201" else 5])
    return np.asarray(1.0 + launch * launches + rate * macs)


def measured(name: str, codes: np.ndarray, rates: tuple[float, float], space: Space = "nb201"):
    queries = [Query(Architecture(space, tuple(c)), device(name)) for c in codes.tolist()]
    noise = np.exp(np.random.default_rng(len(name)).normal(0.0, 0.02, len(codes)))
    times = truth_ms(space, codes, *rates) * noise
    return Measurements(queries, {"latency_ms": times}, {"device": np.full(len(codes), name)})


@cache
def training_rows() -> Measurements:
    rows = [measured(name, random_codes("nb201", 150, 1), RATES[name]) for name in KNOWN_DEVICES]
    nets = random_codes("fbnet", 80, 1)
    rows += [measured(name, nets, RATES[name], "fbnet") for name in KNOWN_DEVICES]
    return sum(rows[1:], rows[0])


@cache
def fitted() -> ArchitectureLatency:
    return ArchitectureLatency().fit(training_rows())


def stranger(count: int, seed: int = 5, space: Space = "nb201") -> Measurements:
    return measured("stranger", random_codes(space, count, seed), (0.06, 0.03), space)


class TestContract(PredictorContract):
    make = staticmethod(fitted)
    training_rows = staticmethod(training_rows)

    def queries(self):
        return [*stranger(3).queries, *stranger(3, space="fbnet").queries]


class TestAdaptedContract(TestContract):
    def make(self):
        return fitted().adapt(stranger(20)).adapt(stranger(20, space="fbnet"))

    def training_rows(self):
        return None

    def test_renaming_a_device_changes_nothing(self):
        """An adapted device is identified by its name alone, so a new name is a new device."""
        renamed = [replace(q, device=device("renamed")) for q in self.queries()]
        assert all(self.make().predict(renamed).limits)


def median_ape(predictor, rows):
    return 100 * np.median(errors(predictor, rows))


@pytest.mark.slow
@pytest.mark.parametrize("space", ["nb201", "fbnet"])
def test_twenty_rows_make_a_stranger_known(space):
    held_out = stranger(300, 9, space)
    before, after = fitted(), fitted().adapt(stranger(20, space=space))
    assert median_ape(after, held_out) < 5.0 < median_ape(before, held_out)
    assert not any(after.predict(held_out.queries).limits)
    assert all(before.predict(held_out.queries).limits)


def test_intervals_of_an_adapted_device_hold_about_nine_in_ten():
    held_out, held = stranger(400, 9), []
    for seed in range(6):
        answer = fitted().adapt(stranger(20, 20 + seed)).predict(held_out.queries)
        held.append(inside(answer, held_out).mean())
    assert 0.85 <= np.mean(held) <= 1.0


def test_a_device_of_the_training_set_needs_no_further_rows():
    held_out = measured("mathy", random_codes("nb201", 200, 8), RATES["mathy"])
    assert median_ape(fitted(), held_out) < 5.0
    assert not any(fitted().predict(held_out.queries).limits)


def test_without_any_pool_structure_alone_answers():
    bare = ArchitectureLatency()
    held_out = stranger(200, 9)
    unknown = bare.predict(held_out.queries)
    assert np.isnan(unknown.values["latency_ms"]).all()
    assert all("no device is known" in str(line) for lines in unknown.limits for line in lines)
    assert median_ape(bare.adapt(stranger(20)), held_out) < 10.0


def test_a_pool_that_is_unlike_the_device_does_no_harm():
    """With noise for a pool, the experts that use it lose their weight."""
    codes = random_codes("nb201", 150, 1)
    rows = measured("odd", codes, RATES["mathy"])
    shuffled = np.random.default_rng(0).permutation(rows.values["latency_ms"])
    odd = ArchitectureLatency().fit(replace(rows, values={"latency_ms": shuffled}))
    held_out, support = stranger(300, 9), stranger(20)
    alone = median_ape(ArchitectureLatency().adapt(support), held_out)
    assert median_ape(odd.adapt(support), held_out) < alone + 1.5


def test_too_small_a_support_set_is_refused():
    with pytest.raises(InputError, match="stranger has 2 measured architectures"):
        fitted().adapt(stranger(2))


def test_whole_milliseconds_are_a_noise_of_known_size():
    times = np.array([4.0, 8.0, 20.0])
    np.testing.assert_allclose(rounding_noise(times), 1 / (12 * times**2))
    assert not rounding_noise(times + 0.25).any()


def test_cells_that_fold_away_do_not_pull_the_rest_down():
    logs = log_times(np.array([0.001, 10.0, 10.0, 12.0]))
    assert logs[0] == pytest.approx(np.log(1.0))


def test_a_search_over_the_whole_space_is_answered():
    codes = np.stack(np.meshgrid(*[range(5)] * 6), axis=-1).reshape(-1, 6)
    queries = [Query(Architecture("nb201", tuple(c)), device("stranger")) for c in codes.tolist()]
    support = stranger(20)
    found = fitted().adapt(support).predict(queries).values["latency_ms"]
    assert len(found) == 5**6
    assert (found > 0).all()
