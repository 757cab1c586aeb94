"""`KnownDesigns`: which training designs a design is compared with, and the inputs of a pair."""

import numpy as np
import pytest

from forerun.models.hls_designs.features import (
    BOUND_COLUMNS,
    METRICS,
    feature_matrix,
    place_matrix,
    program_key,
)
from forerun.models.hls_designs.known_designs import (
    COMBINATION,
    FURTHEST,
    NEIGHBOURS,
    KnownDesigns,
)
from tests.models.hls_designs.test_booster import measured


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
            assert "together they lie" in str(limit)
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
