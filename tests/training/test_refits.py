"""Small refits of every predictor give the stored predictions."""

import pytest

from tests.golden.ask import comparison_of
from tests.golden.compare import report
from tests.golden.refits import REFITS
from tests.golden.test_golden import RENEW

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("group", REFITS)
def test_answers_of_refits_are_as_stored(group):
    comparison = comparison_of(group)
    assert not comparison.differences, f"\n{report([comparison])}\n{RENEW}"
