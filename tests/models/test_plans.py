"""What plans share: the front, shares of draws, and close calls."""

import numpy as np
import pytest

from forerun.models.plans import NEAR, close_call, front, ranked, wins_of


@pytest.mark.parametrize("criteria", [1, 2, 3])
def test_the_front_is_what_no_other_beats(criteria: int) -> None:
    """Against the definition: of whole numbers, of which many are the same."""
    generator = np.random.default_rng(criteria)
    costs = generator.integers(0, 6, size=(60, criteria)).astype(float)
    found = front(costs)
    kept = {tuple(costs[row]) for row in found}
    beaten = [any((other <= own).all() and (other < own).any() for other in costs) for own in costs]
    assert kept == {
        tuple(own) for own, is_beaten in zip(costs, beaten, strict=True) if not is_beaten
    }
    assert len(kept) == len(found)
    assert costs[found][:, 0].tolist() == sorted(costs[found][:, 0])
    assert front(np.empty((0, criteria))) == []


@pytest.mark.parametrize("criteria", [1, 2])
def test_options_as_good_are_ordered_by_grade_and_then_by_memory(criteria: int) -> None:
    """Nothing stands in front of what costs over 1 % less in the first criterion."""
    generator = np.random.default_rng(criteria)
    costs = 100.0 * generator.integers(95, 110, size=(40, criteria)).astype(float)
    costs *= 1.0 + 0.004 * generator.random(costs.shape)
    grades = generator.choice(list("ABC"), 40).tolist()
    memory = generator.random(40).tolist()
    order = ranked(costs, lambda places: [(grades[one], memory[one]) for one in places])
    assert sorted(order) == list(range(40))
    for place, row in enumerate(order):
        assert all(costs[row, 0] <= costs[later, 0] * (1.0 + NEAR) for later in order[place:])
    same = np.repeat([[3.0] * criteria], 40, axis=0)
    order = ranked(same, lambda places: [(grades[one], memory[one]) for one in places])
    assert [(grades[one], memory[one]) for one in order] == sorted(zip(grades, memory, strict=True))


def test_a_trusted_option_is_not_behind_one_that_is_a_little_faster() -> None:
    """Of .2 % it is, of 2 % it is not; alone, no grade is asked for."""
    grades = {0: ("C", 1.0), 1: ("A", 9.0), 2: ("A", 5.0)}

    def quality(places: list[int]) -> list[tuple[str, float]]:
        assert len(places) > 1
        return [grades[one] for one in places]

    assert ranked(np.array([[51.58], [51.68], [60.0]]), quality) == [1, 0, 2]
    assert ranked(np.array([[50.0], [51.0], [60.0]]), quality) == [0, 1, 2]
    assert ranked(np.array([[np.inf], [1.0], [1.005]]), quality) == [2, 1, 0]
    assert ranked(np.empty((0, 1)), quality) == []


def test_shares_of_draws_add_up_and_go_to_the_least() -> None:
    """Three draws of three options, of which the last never costs least."""
    costs = np.array([[1.0, 2.0, 3.0], [2.0, 1.0, 3.0], [1.0, 5.0, 9.0]])
    assert wins_of(costs).tolist() == pytest.approx([2 / 3, 1 / 3, 0.0])


@pytest.mark.parametrize(
    ("wins", "found"),
    [([], None), ([1.0], None), ([0.9, 0.1], None), ([0.5, 0.1, 0.4], 2), ([0.0, 1.0], 1)],
)
def test_a_close_call_names_the_strongest_other(wins: list[float], found: int | None) -> None:
    """None where the first wins in nine of ten draws."""
    assert close_call(wins) == found
