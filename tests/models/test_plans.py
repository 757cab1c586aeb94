"""What plans share: the front, shares of draws, and close calls."""

import numpy as np
import pytest

from forerun.models.plans import close_call, front, wins_of


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
