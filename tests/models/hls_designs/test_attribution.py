"""Shapley values of loops: they add up, and known effects are found again."""

from math import prod

import numpy as np
import pytest

from forerun.data.query import Query
from forerun.data.workload import Design
from forerun.features.hls.directives import directives_by_loop, loop_label, only_on
from forerun.models.hls_designs.attribution import MOST_EXACT, loop_effects
from tests.models.hls_designs.test_booster import DEVICE, NEW, TOOL, fitted, measured
from tests.programs import nested

PROGRAM = nested([8, 8])


def design(loops, **more):
    given = {f"__PARA__L{at}": "2" for at in range(loops)} | more
    return Design(PROGRAM, tuple(sorted(given.items())))


@pytest.mark.parametrize("loops", [0, 1, 3, MOST_EXACT, MOST_EXACT + 2])
def test_independent_effects_are_found_again_and_multiply_to_the_answer(loops):
    def cycles(designs):
        chosen = (directives_by_loop(own) for own in designs)
        return np.array([1e6 * prod(0.5 + 0.1 * int(n[1:]) for n in own) for own in chosen])

    own = loop_effects(design(loops), cycles)
    assert own.base == pytest.approx(1e6)
    found = {label.split(":")[0]: factor for label, factor in own.factors.items()}
    assert found == pytest.approx({f"loop L{at}": 0.5 + 0.1 * at for at in range(loops)}, rel=1e-9)


@pytest.mark.parametrize("loops", [2, MOST_EXACT + 2])
def test_an_effect_of_all_loops_together_is_divided_equally(loops):
    def cycles(designs):
        return np.array([1.0 if len(directives_by_loop(own)) == loops else 1024.0
                         for own in designs])  # fmt: skip

    own = loop_effects(design(loops), cycles)
    assert own.base * prod(own.factors.values()) == pytest.approx(1.0, rel=1e-9)
    if loops <= MOST_EXACT:
        assert list(own.factors.values()) == pytest.approx([1024.0 ** (-1 / loops)] * loops)


def test_a_loop_that_changes_nothing_has_the_factor_one():
    def cycles(designs):
        return np.array([4.0 if "L0" in directives_by_loop(own) else 9.0 for own in designs])

    own = loop_effects(design(3), cycles)
    assert sorted(own.factors.values()) == pytest.approx([4.0 / 9.0, 1.0, 1.0])


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
    given = design(1, __PIPE__L0="off", __PIPE__L1="", __TILE__L1="1")
    assert directives_by_loop(given) == {"L0": {"__PARA__L0": "2"}, "L1": {"__PIPE__L1": ""}}
    assert only_on(given, ["L0", "L1"]) == given
    assert dict(only_on(given, []).directives) == {
        "__PARA__L0": "1", "__PIPE__L0": "off", "__PIPE__L1": "off", "__TILE__L1": "1",
    }  # fmt: skip
    assert loop_label("L1", {"__PIPE__L1": ""}) == "loop L1: pipeline on"
