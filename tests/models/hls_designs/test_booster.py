"""Designs by boosters: features, known designs, limits and attribution."""

from functools import lru_cache
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.bundle import Bundle
from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Design
from forerun.features.hls.directives import (
    DESIGN_FEATURES,
    PLACE_COLUMNS,
    design_row,
    directives_by_loop,
    loop_label,
    only_on,
)
from forerun.features.hls.loop_factors import FACTOR_FEATURES, FACTOR_TOTALS
from forerun.models.contract import PredictorContract
from forerun.models.hls_designs.attribution import MOST_EXACT, loop_effects
from forerun.models.hls_designs.booster import DesignBoost
from forerun.models.hls_designs.features import (
    BOUND_COLUMNS,
    FEATURES,
    LOOPS,
    METRICS,
    feature_matrix,
    from_logarithms,
    log_bounds,
    log_values,
    place_matrix,
    program_key,
    unit_rows,
)
from forerun.models.hls_designs.known_designs import (
    COMBINATION,
    FURTHEST,
    NEIGHBOURS,
    KnownDesigns,
)
from forerun.models.hls_designs.limits import RESOURCES, DirectiveRange, chip_limits
from tests.models.judged import inside
from tests.programs import nested

# `DesignBoost`: bounds, boosters, and few-shot adaptation by a Gaussian process.


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
    make = staticmethod(fitted)
    training_rows = staticmethod(training_rows)

    def queries(self):
        return [*measured([16, 32]).queries[:3], *measured(NEW).queries[:3]]


@lru_cache(maxsize=1)
def adapted() -> DesignBoost:
    return fitted().adapt(measured(NEW).take(range(0, 60, 3)))


class TestAdaptedDesignBoostContract(PredictorContract):
    make = staticmethod(adapted)

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
    assert inside(adapted.predict(held_out.queries), held_out, "latency_cycles").mean() > 0.75
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


@pytest.mark.reference
def test_twenty_designs_of_a_program_never_seen_beat_their_mean(reference):
    """jacobi-2d and trmm-opt, trained on five others: published scale, sums over five targets."""
    from forerun.training.protocols.hls_designs.hls_designs import design_measurements, performance

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


# Metrics of designs as logarithms over a bound, and back; matrices by hand.


def design(trips=(16, 64), version="2018.3", **values):
    directives = tuple(sorted((f"__{name}", str(v)) for name, v in values.items()))
    return Query(
        Design(nested(list(trips)), directives), DEVICE, Software(framework="sdx", version=version)
    )


def with_share(share):
    """A matrix of one design that takes this share of all DSP blocks."""
    matrix = feature_matrix([design()])
    matrix[0, FEATURES.index("dsp_near")] = np.log2(share + 1e-3)
    return matrix


@given(st.floats(0.01, 0.9), st.lists(st.floats(1e-4, 1.0), min_size=5, max_size=5))
def test_metrics_come_back_from_their_logarithms(share, values):
    bounds = log_bounds(with_share(share))
    again = from_logarithms(log_values(np.array([values])) - bounds + bounds)
    assert again[0] == pytest.approx(values, abs=1e-9)


def test_values_are_never_negative_and_finite():
    assert from_logarithms(np.full((1, len(METRICS)), -50.0))[0, 1:].tolist() == [0.0] * 4
    assert np.isfinite(from_logarithms(np.full((1, len(METRICS)), 1e9))).all()


@pytest.mark.parametrize(
    ("metric", "per_share", "floor"),
    [("util_dsp", 1.0, 0.02), ("util_lut", 0.48, 0.02), ("util_ff", 0.36, 0.01)],
)
def test_a_design_of_floating_point_pipelines_lies_on_its_bound(metric, per_share, floor):
    """A tenth of the DSP blocks, with the logic that their pipelines take."""
    bounds, at = log_bounds(with_share(0.1)), METRICS.index(metric)
    assert 2 ** bounds[0, at] == pytest.approx(per_share * 0.1 + floor)
    assert log_values(np.full((1, 5), per_share * 0.1))[0, at] == pytest.approx(bounds[0, at])


@pytest.mark.parametrize("metric", ["latency_cycles", "util_bram"])
def test_cycles_and_block_memory_have_no_bound(metric):
    assert log_bounds(with_share(0.1))[0, METRICS.index(metric)] == 0.0


def test_places_are_padded_with_zeros_and_cut_at_ten_loops():
    matrix = place_matrix([design(PARA__L0=2), design((2,) * 12, PARA__L0=2)])
    width, of_factors = LOOPS * len(PLACE_COLUMNS), LOOPS * len(FACTOR_FEATURES)
    assert matrix.shape == (2, width + of_factors + len(FACTOR_TOTALS))
    places, factors = matrix[:, :width], matrix[:, width : width + of_factors]
    for values, columns in ((places, PLACE_COLUMNS), (factors, FACTOR_FEATURES)):
        assert values[0, : len(columns)].any()
        assert (values[0, 2 * len(columns) :] == 0).all()
        assert values[1, -len(columns) :].any()


@given(st.floats(0.1, 100.0), st.floats(-50.0, 50.0))
def test_rows_of_unit_length_know_no_scale_and_no_origin(scale, shift):
    matrix = np.random.default_rng(0).normal(size=(20, 3))
    found = unit_rows(matrix)
    assert (found**2).sum(axis=1).mean() == pytest.approx(1.0)
    assert found.mean(axis=0) == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(unit_rows(scale * matrix + shift), found, atol=1e-9)
    assert unit_rows(np.ones((4, 2))).tolist() == [[0.0, 0.0]] * 4


# `KnownDesigns`: which training designs a design is compared with, and the inputs of a pair.


def known(rows) -> KnownDesigns:
    """The designs of rows, the values of each its position."""
    places = place_matrix(rows.queries)
    values = np.repeat(np.arange(len(rows), dtype=np.float64)[:, None], len(METRICS), axis=1)
    return KnownDesigns.of(rows.queries, places, np.zeros(len(rows), dtype=np.intp), values)


def pairs(designs, queries, **options):
    return designs.pairs(designs.nearest(queries, **options), feature_matrix(queries))


def limit_of(designs, query):
    return KnownDesigns.combination_limit(*designs.nearest([query]))


def test_a_design_is_compared_with_itself_first_and_in_training_with_others_only():
    rows = measured([16, 32]).take(range(0, 96, 5))
    designs = known(rows)
    found = pairs(designs, rows.queries)
    assert found.design.tolist() == np.repeat(np.arange(len(rows)), NEIGHBOURS).tolist()
    # Directives that change nothing, as inside a flattened loop, make designs alike.
    places, first = place_matrix(rows.queries), found.values[::NEIGHBOURS, 0].astype(int)
    assert (places[first] == places).all()
    others = pairs(designs, rows.queries, others=True)
    assert (others.values[:, 0] != others.design).all()
    assert len(others.design) == NEIGHBOURS * len(rows)


def test_neighbours_are_those_by_all_distances_and_the_first_of_those_as_near():
    rows = measured([16, 32]) + measured([8, 16, 32])
    designs = known(rows)
    units, places = np.array(designs.units), place_matrix(rows.queries)
    for at, own in enumerate(designs.nearest(rows.queries)):
        same = [program_key(q) == program_key(rows.queries[at]) for q in rows.queries]
        near = np.clip(places[same] / units, -FURTHEST, FURTHEST)
        place = np.clip(places[at] / units, -FURTHEST, FURTHEST)
        varying = np.ptp(near, axis=0) > 0
        distances = sum((near - place).T[varying] ** 2)
        order = np.argsort(distances, kind="stable")[:NEIGHBOURS]
        assert own.chosen.tolist() == order.tolist()
        assert own.distance == np.sqrt(distances.min())


def test_inputs_are_features_differences_and_known_values():
    rows = measured([16, 32]).take([0, 40, 80])
    found = pairs(known(rows), rows.queries[:1])
    matrix, places = feature_matrix(rows.queries), place_matrix(rows.queries)
    other = int(found.values[1, 0])
    wanted = [
        *(matrix[0], places[0]),
        *((matrix[other] - matrix[0])[BOUND_COLUMNS], places[other] - places[0]),
        np.full(len(METRICS), other),
    ]
    assert found.inputs[1] == pytest.approx(np.concatenate(wanted))


def reach(rows, units) -> float:
    """Largest distance of one design from the nearest other, by hand."""
    places = place_matrix(rows.queries) / units
    return max(
        min(float(np.linalg.norm(a - b)) for j, b in enumerate(places) if j != i)
        for i, a in enumerate(places)
    )


def test_a_combination_is_a_limit_from_the_largest_distance_between_neighbours_on():
    rows = measured([16, 32])
    near = [
        at
        for at, query in enumerate(rows.queries)
        if dict(query.design.directives)["__PARA__L0"] == "1"
        or dict(query.design.directives)["__PARA__L1"] == "1"
    ]
    training = rows.take(near)
    designs = known(training)
    units = np.array(designs.units)
    largest = reach(training, units)
    places = place_matrix(training.queries) / units
    flagged = 0
    for query in rows.queries:
        own = place_matrix([query])[0] / units
        distance = float(np.linalg.norm(places - own, axis=1).min())
        limit = limit_of(designs, query)
        assert (limit is not None) == (distance > largest)
        if limit is not None:
            flagged += 1
            assert (limit.severity, limit.feature, limit.high) == ("outside", COMBINATION, 1.0)
            assert limit.value == pytest.approx(distance / largest)
            assert "their combination is" in str(limit)
    assert 0 < flagged < len(rows)


def test_training_designs_and_programs_with_one_design_have_no_combination_limit():
    rows = measured([16, 32])
    designs = known(rows)
    assert all(limit_of(designs, query) is None for query in rows.queries)
    lone = known(rows.take([1]))
    assert limit_of(lone, rows.queries[50]) is None


def test_fewer_designs_than_neighbours_are_enough():
    rows = measured([16, 32]).take([0, 40])
    designs = known(rows)
    found = pairs(designs, measured([16, 32]).queries[:4])
    assert found.design.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    of_pairs = np.column_stack([np.arange(8.0), np.arange(8.0) ** 2])
    assert found.means(of_pairs) == pytest.approx(of_pairs.reshape(4, 2, 2).mean(axis=1))
    lone = known(rows.take([1]))
    assert pairs(lone, rows.queries[1:], others=True).values[:, 0].tolist() == [0.0]


def test_the_range_of_directives_is_that_of_the_program_and_else_of_all_programs():
    rows, other = measured([16, 32]).take([0, 40]), measured([8, 16, 32])
    designs = known(rows + other)
    (key, wide), new = map(program_key, (rows.queries[0], other.queries[0])), measured([40, 80])
    own = designs.directive_range(key)
    values = [int(dict(q.design.directives)["__PARA__L1"]) for q in rows.queries]
    assert own.factors["__PARA__L1"] == (min(values), max(values))
    assert designs.directive_range(wide).factors["__PARA__L1"] == (1, 16)
    of_all = designs.directive_range(program_key(new.queries[0]))
    assert of_all.factors == {"__PARA__": (1, 16)}


def test_measured_designs_of_a_program_widen_its_range():
    rows = measured([16, 32])
    key, support = program_key(rows.queries[0]), [(("__PARA__L1", "64"),)]
    assert known(rows).directive_range(key, support).factors["__PARA__L1"] == (1, 64)
    assert known(rows).directive_range(key).factors["__PARA__L1"] == (1, 16)


# Limits of designs: directives outside the measured ones, and more than the chip has.


MEASURED = [
    (("__PARA__L0", "1"), ("__PARA__L1", "4"), ("__PIPE__L0", "off"), ("__TILE__L0", "1")),
    (("__PARA__L0", "16"), ("__PARA__L1", "8"), ("__PIPE__L0", ""), ("__TILE__L0", "1")),
]
OF_PROGRAM = DirectiveRange.of_program(MEASURED)


def nested_design(**directives):
    return Design(nested([16, 32]), tuple(sorted(directives.items())))


def test_a_factor_outside_the_measured_ones_is_a_limit_with_slot_value_and_range():
    (limit,) = OF_PROGRAM.outside(nested_design(__PARA__L0="1000", __PARA__L1="4"))
    assert limit.severity == "outside"
    assert limit.metric is None
    assert (limit.feature, limit.value, limit.low, limit.high) == ("__PARA__L0", 1000.0, 1.0, 16.0)
    assert str(limit) == "__PARA__L0 is 1,000, measured designs of this program have 1 to 16"


@pytest.mark.parametrize("factor", ["1", "3", "16"])
def test_a_factor_between_the_smallest_and_the_largest_is_no_limit(factor):
    assert OF_PROGRAM.outside(nested_design(__PARA__L0=factor)) == ()


def test_a_pipeline_that_was_not_measured_is_a_limit_that_names_those_that_were():
    (limit,) = OF_PROGRAM.outside(nested_design(__PIPE__L0="flatten"))
    assert limit.severity == "outside"
    assert str(limit) == (
        "__PIPE__L0 is 'flatten', measured designs of this program have '' or 'off'"
    )
    assert OF_PROGRAM.outside(nested_design(__PIPE__L0="")) == ()


def test_a_slot_of_which_nothing_is_known_takes_only_what_changes_nothing():
    assert OF_PROGRAM.outside(nested_design(__PARA__L7="1", __PIPE__L7="off")) == ()
    assert len(OF_PROGRAM.outside(nested_design(__PARA__L7="2", __PIPE__L7="flatten"))) == 2


def test_over_all_programs_slots_of_one_kind_have_one_range():
    every = DirectiveRange.of_programs(MEASURED)
    assert every.outside(nested_design(__PARA__L7="16", __PIPE__L7="", __TILE__L7="1")) == ()
    (limit,) = every.outside(nested_design(__PARA__L7="17"))
    assert "measured designs of all programs have 1 to 16" in str(limit)


def of_chip(value, low=None, high=None):
    """Limits of a design with these shares of the chip and ends; all others are small."""
    rows = [np.full(len(METRICS), 0.1) for _ in range(3)]
    for row, shares in zip(rows, (value, low or value, high or value), strict=True):
        row[METRICS.index("latency_cycles")] = 1e6
        for metric, share in shares.items():
            row[METRICS.index(metric)] = share
    return chip_limits(*rows)


def test_a_design_within_the_chip_has_no_limit():
    assert of_chip({"util_dsp": 0.99}) == ()


@pytest.mark.parametrize(("metric", "resource"), RESOURCES.items())
def test_a_design_that_needs_more_than_the_chip_has_is_refused_by_resource(metric, resource):
    (limit,) = of_chip({metric: 22.0})
    assert limit.severity == "refusal"
    assert str(limit) == f"it needs 22 times the {resource} of the chip: it does not fit"


def test_one_refusal_names_all_resources_that_the_chip_lacks():
    (limit,) = of_chip({"util_dsp": 1234.0, "util_lut": 9.004, "util_ff": 1.5})
    needed = "1,234 times the DSP blocks, 9 times the LUTs and 1.5 times the flip-flops"
    assert needed in str(limit)


def test_where_the_interval_reaches_down_to_the_chip_it_only_probably_does_not_fit():
    (limit,) = of_chip({"util_dsp": 1.2}, low={"util_dsp": 0.9}, high={"util_dsp": 1.6})
    assert limit.severity == "refusal"
    assert str(limit).endswith("it probably does not fit")


def test_an_upper_end_beyond_the_chip_is_a_note():
    (limit,) = of_chip({"util_bram": 0.8}, high={"util_bram": 1.25})
    assert limit.severity == "note"
    assert str(limit) == (
        "it needs up to 1.25 times the block RAMs of the chip by the upper end of the interval: "
        "it may not fit"
    )


# Shapley values of loops: they add up, and known effects are found again.


PROGRAM = nested([8, 8])


def design_of_loops(loops, **more):
    given = {f"__PARA__L{at}": "2" for at in range(loops)} | more
    return Design(PROGRAM, tuple(sorted(given.items())))


@pytest.mark.parametrize("loops", [0, 1, 3, MOST_EXACT, MOST_EXACT + 2])
def test_independent_effects_are_found_again_and_multiply_to_the_answer(loops):
    def cycles(designs):
        chosen = (directives_by_loop(own) for own in designs)
        return np.array([1e6 * prod(0.5 + 0.1 * int(n[1:]) for n in own) for own in chosen])

    own = loop_effects(design_of_loops(loops), cycles)
    assert own.base == pytest.approx(1e6)
    found = {label.split(":")[0]: factor for label, factor in own.factors.items()}
    assert found == pytest.approx({f"loop L{at}": 0.5 + 0.1 * at for at in range(loops)}, rel=1e-9)


@pytest.mark.parametrize("loops", [2, MOST_EXACT + 2])
def test_an_effect_of_all_loops_together_is_divided_equally(loops):
    def cycles(designs):
        return np.array([1.0 if len(directives_by_loop(own)) == loops else 1024.0
                         for own in designs])  # fmt: skip

    own = loop_effects(design_of_loops(loops), cycles)
    assert own.base * prod(own.factors.values()) == pytest.approx(1.0, rel=1e-9)
    if loops <= MOST_EXACT:
        assert list(own.factors.values()) == pytest.approx([1024.0 ** (-1 / loops)] * loops)


@pytest.mark.parametrize("adapted", [False, True])
def test_the_factors_multiply_to_the_answer_of_boosters_and_of_the_adapted_process(adapted):
    predictor = fitted().adapt(measured(NEW).take(range(0, 60, 3))) if adapted else fitted()
    query = measured(NEW).queries[-1]

    def cycles(designs):
        queries = [Query(own, DEVICE, TOOL) for own in designs]
        return predictor.predict(queries).values["latency_cycles"]

    own = loop_effects(query.workload, cycles)
    (answer,) = cycles([query.workload])
    assert len(own.factors) == 2
    assert own.base * prod(own.factors.values()) == pytest.approx(answer, rel=1e-9)


def test_neutral_directives_belong_to_no_loop_and_are_restored():
    given = design_of_loops(1, __PIPE__L0="off", __PIPE__L1="", __TILE__L1="1")
    assert directives_by_loop(given) == {"L0": {"__PARA__L0": "2"}, "L1": {"__PIPE__L1": ""}}
    assert only_on(given, ["L0", "L1"]) == given
    assert dict(only_on(given, []).directives) == {
        "__PARA__L0": "1", "__PIPE__L0": "off", "__PIPE__L1": "off", "__TILE__L1": "1",
    }  # fmt: skip
    assert loop_label("L1", {"__PIPE__L1": ""}) == "loop L1: pipeline on"
