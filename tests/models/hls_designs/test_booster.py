"""`DesignBoost`: bounds, boosters, and few-shot adaptation by a Gaussian process."""

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.data.bundle import Bundle
from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Design
from forerun.features.hls.directives import DESIGN_FEATURES, design_row
from forerun.models.contract import PredictorContract
from forerun.models.hls_designs.booster import DesignBoost
from forerun.models.hls_designs.features import METRICS
from forerun.models.hls_designs.gaussian_process import DesignGaussianProcess, DesignInputs
from tests.programs import nested

DEVICE = Device(name="fpga", vendor="amd", kind="fpga")
TOOL = Software(framework="sdx", version="2018.3")
TREES = {"seen": 60, "unseen": 40, "within": 40}


def measured(trips, factor=1.0, noise=0.02) -> Measurements:
    """Designs of one nest: cycles and area near their bounds, times a factor."""
    random, program = np.random.default_rng(len(trips)), nested(trips)
    queries = []
    for copies in (1, 2, 3, 4, 6, 8, 12, 16):
        for outer in (1, 2, 4, 8):
            for pipe in ("off", "", "flatten"):
                choices = {"__PARA__L1": copies, "__PARA__L0": outer, "__PIPE__L0": pipe}
                directives = tuple(sorted((k, str(v)) for k, v in choices.items()))
                queries.append(Query(Design(program, directives), DEVICE, TOOL))
    rows = np.array([design_row(q.workload) for q in queries])
    bound = {
        name: 2.0 ** rows[:, DESIGN_FEATURES.index(name)] for name in ("log_cycles", "dsp_all")
    }
    error = np.exp(random.normal(0, noise, (2, len(queries))))
    values = {"latency_cycles": factor * bound["log_cycles"] * error[0]}
    share = bound["dsp_all"] * error[1]
    values |= {f"util_{name}": share for name in ("dsp", "lut", "ff")}
    values["util_bram"] = np.zeros(len(queries))
    kernel = np.array(["-".join(map(str, trips))] * len(queries))
    return Measurements(queries, values, {"kernel": kernel})


def joined(*parts) -> Measurements:
    return parts[0] if len(parts) == 1 else parts[0] + joined(*parts[1:])


@lru_cache(maxsize=1)
def fitted() -> DesignBoost:
    return DesignBoost(trees=TREES, loop_shape=None).fit(training_rows())


def training_rows() -> Measurements:
    return joined(*[measured([n, m]) for n, m in ((16, 32), (32, 64), (64, 64), (24, 48))])


NEW = [40, 80]


@pytest.mark.slow
class TestDesignBoostContract(PredictorContract):
    def make(self):
        return fitted()

    def training_rows(self):
        return training_rows()

    def queries(self):
        return [*measured([16, 32]).queries[:3], *measured(NEW).queries[:3]]


class TestAdaptedDesignBoostContract(PredictorContract):
    def make(self):
        return fitted().adapt(measured(NEW).take(range(0, 60, 3)))

    def queries(self):
        return [*measured([16, 32]).queries[:2], *measured(NEW).queries[:4]]


def beyond(predictions):
    """Limits by the training set, without those of the chip's size."""
    every = (line for lines in predictions.limits for line in lines)
    return [line for line in every if line.severity in {"outside", "transfer"}]


def errors(predictor, rows):
    found = predictor.predict(rows.queries).values
    return {
        m: np.sqrt(np.mean(np.log2((found[m] + 0.02) / (rows.values[m] + 0.02)) ** 2))
        for m in METRICS
    }


def test_designs_of_a_training_program_are_predicted_closely():
    error = errors(fitted(), measured([32, 64]))
    assert error["latency_cycles"] < 0.3
    assert error["util_dsp"] < 0.3


def test_a_few_designs_suffice_for_a_program_slower_than_all_others():
    rows = measured(NEW, factor=20.0)
    support = np.zeros(len(rows), dtype=bool)
    support[fitted().suggest(rows.queries, 20)] = True
    adapted = fitted().adapt(rows.take(support))
    held_out = rows.take(~support)
    before, after = errors(fitted(), held_out), errors(adapted, held_out)
    assert after["latency_cycles"] < 0.3 * before["latency_cycles"]
    low, high = (getattr(adapted.predict(held_out.queries), end) for end in ("low", "high"))
    truth = held_out.values["latency_cycles"]
    inside = (low["latency_cycles"] <= truth) & (truth <= high["latency_cycles"])
    assert inside.mean() > 0.75
    known = measured([32, 64]).queries
    assert (
        adapted.predict(known).values["latency_cycles"]
        == fitted().predict(known).values["latency_cycles"]
    ).all()


def test_a_program_nobody_measured_has_wide_intervals_and_says_so():
    new, old = (fitted().predict(measured(trips).queries) for trips in (NEW, [32, 64]))
    unseen = "no design of this program was measured"
    assert all(any(unseen in str(line) for line in lines) for lines in new.limits)
    assert not beyond(old)
    widths = [
        np.mean(np.log(a.high["latency_cycles"] / a.low["latency_cycles"])) for a in (new, old)
    ]
    assert widths[0] > widths[1]
    adapted = fitted().adapt(measured(NEW).take([0, 40, 80]))
    assert not beyond(adapted.predict(measured(NEW).queries))


def test_another_version_of_the_tool_is_another_program():
    rows = measured(NEW)
    later = Software(framework="vitis", version="2020.2")
    moved = [Query(q.workload, q.device, later) for q in rows.queries]
    adapted = fitted().adapt(rows.take(range(20)))
    assert adapted.predict(moved).values["util_dsp"] == pytest.approx(
        fitted().predict(moved).values["util_dsp"]
    )


def inputs(random, n):
    feature_sets = tuple(random.normal(size=(n, 3)) for _ in range(3))
    return DesignInputs(feature_sets, random.normal(size=n))


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 1000), st.floats(-50, 50), st.floats(0.1, 50))
def test_a_process_follows_level_and_unit_of_its_values(seed, level, unit):
    random = np.random.default_rng(seed)
    support, held_out, values = inputs(random, 12), inputs(random, 5), random.normal(size=12)
    mean, spread = DesignGaussianProcess.of(support, values).predict(held_out)
    moved, wider = DesignGaussianProcess.of(support, level + unit * values).predict(held_out)
    assert moved == pytest.approx(level + unit * mean, abs=1e-6 * unit, rel=1e-6)
    assert wider == pytest.approx(unit * spread, rel=1e-6)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 1000))
def test_a_process_is_surer_at_its_support_set(seed):
    random = np.random.default_rng(seed)
    support = inputs(random, 15)
    far = DesignInputs(tuple(features + 50.0 for features in support.feature_sets), support.answer)
    process = DesignGaussianProcess.of(support, random.normal(size=15))
    assert process.predict(support)[1].mean() < process.predict(far)[1].mean()


@pytest.mark.reference
def test_twenty_designs_of_a_program_never_seen_beat_their_mean(reference):
    """jacobi-2d and trmm-opt, trained on five others: published scale, sums over five targets."""
    from forerun.training.protocols.hls_designs.hlsyn import design_measurements, performance

    bundle = Bundle.open(reference / "hlsyn")
    designs = bundle.table("designs").query("tool == 'v18' and latency_cycles > 0")
    training = ("gemm-p", "doitgen", "jacobi-1d", "syrk", "trmm")
    train = design_measurements(designs[designs["kernel"].isin(training)], bundle)
    trees = {**TREES, "seen": 1}
    boost = DesignBoost(calibrated=False, trees=trees, loop_shape=None).fit(train)
    for kernel in ("jacobi-2d", "trmm-opt"):
        rows = design_measurements(designs[designs["kernel"] == kernel], bundle)
        support = np.zeros(len(rows), dtype=bool)
        support[boost.suggest(rows.queries, 20)] = True
        few, held_out = rows.take(support), rows.take(~support)
        answers = boost.adapt(few).predict(held_out.queries).values
        ours = mean = 0.0
        for metric in METRICS:
            scale = performance if metric == "latency_cycles" else np.asarray
            truth = scale(held_out.values[metric])
            ours += np.sqrt(np.mean((scale(answers[metric]) - truth) ** 2))
            mean += np.sqrt(np.mean((scale(few.values[metric]).mean() - truth) ** 2))
        assert ours < 0.7 * mean
