"""Boosters without the statistics of their fit predict the same from less text."""

import numpy as np

from forerun.models.gradient_boosting import BoosterBag
from forerun.models.gradient_boosting.bags import coarse, lean


def test_lean_and_coarse_boosters_predict_the_same_from_less_text() -> None:
    """Lean ones lose digits of leaves beyond the sixth; of coarse ones four digits are kept, and a
    tenth of a percent of rows may take another branch.
    """
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(500, 4))
    bag = BoosterBag.fit(matrix, matrix[:, 0] ** 2, parameters={}, trees=20, seeds=(0,))
    whole = bag
    for less, off, size in ((lean, 1e-5, 2 / 3), (coarse, 1e-3, 0.8)):
        small = BoosterBag(tuple(map(less, bag.texts)))
        np.testing.assert_allclose(small.predict(matrix), bag.predict(matrix), atol=off)
        assert len(small.texts[0]) < size * len(whole.texts[0])
        whole = small
