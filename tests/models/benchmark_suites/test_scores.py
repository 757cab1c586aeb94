"""`BenchmarkBoost`: a power law that extrapolates, boosters on its residuals, and its limits."""

from functools import lru_cache

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.benchmark_suites.scores import GROUP, BenchmarkBoost
from forerun.models.contract import PredictorContract
from tests.models.judged import inside

DEVICE = Device(name="board", vendor="amd", kind="fpga")


def asked(width, reuse, strategy="latency", suite="dense") -> Query:
    settings = (("reuse", float(reuse)), ("strategy", strategy), ("width", float(width)))
    return Query(Benchmark(suite, settings), DEVICE)


def measured(noise=0.03) -> Measurements:
    """Layers whose area is a power law, doubled by one strategy; some take no DSP block."""
    random = np.random.default_rng(0)
    cells = [
        (width, reuse, strategy)
        for width in (16, 32, 48, 64, 96, 128)
        for reuse in (1, 2, 4, 8, 16)
        for strategy in ("latency", "resource")
    ]
    width, reuse = (np.array([cell[i] for cell in cells], dtype=float) for i in (0, 1))
    factor = np.array([2.0 if cell[2] == "resource" else 1.0 for cell in cells])
    lut = 10.0 * width**1.5 * reuse**-0.5 * factor * np.exp(random.normal(0, noise, len(cells)))
    values = {"lut": lut, "dsp": np.floor(width / 64.0)}
    groups = {GROUP: np.array([str(cell[0]) for cell in cells])}
    return Measurements([asked(*cell) for cell in cells], values, groups)


@lru_cache(maxsize=1)
def fitted() -> BenchmarkBoost:
    return BenchmarkBoost(trees=60).fit(measured())


class TestBenchmarkBoostContract(PredictorContract):
    make = staticmethod(fitted)
    training_rows = staticmethod(measured)

    def queries(self):
        return [*measured().queries[:3], asked(512, 3), asked(40, 2, "resource")]


class TestAdaptedBenchmarkBoostContract(PredictorContract):
    def make(self):
        rows = measured().take([1, 5, 9])
        return fitted().adapt(Measurements(rows.queries, {"lut": 3.0 * rows.values["lut"]}))

    def queries(self):
        return measured().queries[:4]


def test_it_answers_the_suites_and_metrics_that_were_measured():
    assert fitted().metrics == ("lut", "dsp")
    assert fitted().answers(asked(16, 1))
    assert not fitted().answers(asked(16, 1, suite="another"))
    assert not BenchmarkBoost().answers(asked(16, 1))


def test_a_width_beyond_training_goes_on_with_the_power_law_and_is_said_to_be_outside():
    known, new = fitted().predict([asked(128, 4)]), fitted().predict([asked(512, 4)])
    ratio = new.values["lut"][0] / known.values["lut"][0]
    assert ratio == pytest.approx(4.0**1.5, rel=0.2)
    assert known[0].in_domain
    assert tuple(map(str, new[0].limits)) == ("width is 512; the training set has 16 to 128",)


def test_a_few_rows_move_the_level_of_their_suite_toward_themselves():
    rows = measured().take(range(0, 60, 5))
    shifted = Measurements(rows.queries, {"lut": 3.0 * rows.values["lut"]})
    before, after = (p.predict(rows.queries).values for p in (fitted(), fitted().adapt(shifted)))
    expected = 3.0 ** (12 / 15)
    np.testing.assert_allclose(after["lut"] / before["lut"], expected, rtol=0.1)
    np.testing.assert_array_equal(after["dsp"], before["dsp"])


def test_intervals_hold_about_nine_of_ten_widths_that_were_held_out():
    rows = measured()
    held = np.isin(rows.groups[GROUP], ["48", "64"])
    answers = BenchmarkBoost(trees=60).fit(rows.take(~held)).predict(rows.take(held).queries)
    assert inside(answers, rows.take(held), "lut").mean() >= 0.8
    assert answers.coverage == 0.9
    assert answers.low["dsp"].min() == 0.0
