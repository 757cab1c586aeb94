"""Boosters without the statistics of their fit predict the same from less text."""

import numpy as np

from forerun.models.gradient_boosting import BoosterBag
from forerun.models.gradient_boosting.bags import coarse, lean


def test_a_lean_booster_predicts_the_same_from_less_than_two_thirds_of_the_text() -> None:
    """Only digits of leaves beyond the sixth are lost."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(500, 4))
    bag = BoosterBag.fit(matrix, matrix[:, 0] ** 2, parameters={}, trees=20, seeds=(0,))
    small = BoosterBag(tuple(map(lean, bag.texts)))
    np.testing.assert_allclose(small.predict(matrix), bag.predict(matrix), atol=1e-5)
    assert len(small.texts[0]) < 2 / 3 * len(bag.texts[0])


def test_a_coarse_booster_is_smaller_again_and_predicts_nearly_the_same() -> None:
    """Leaves keep four digits; a tenth of a percent of rows may take another branch."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(500, 4))
    bag = BoosterBag.fit(matrix, matrix[:, 0] ** 2, parameters={}, trees=20, seeds=(0,))
    small, smaller = (BoosterBag(tuple(map(one, bag.texts))) for one in (lean, coarse))
    np.testing.assert_allclose(smaller.predict(matrix), bag.predict(matrix), atol=1e-3)
    assert len(smaller.texts[0]) < 0.8 * len(small.texts[0])
