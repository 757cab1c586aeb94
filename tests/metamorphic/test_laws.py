"""Each law holds, or breaks no more often than is known."""

import pytest

from tests.metamorphic import all_laws
from tests.metamorphic.law import ALLOWED, SMALL, known, outcome

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", all_laws())
def test_a_law_breaks_no_more_often_than_is_known(name):
    found = outcome(name, SMALL)
    assert found.pairs, "no answer was compared"
    allowed = known().get(name, {"share": ALLOWED})["share"]
    assert found.share <= allowed, (
        f"{found.violations} of {found.pairs}, at worst {100 * found.worst:.3g} %: {found.question}"
    )
    if name in known():
        assert found.share > ALLOWED, f"the entry {name} of known.json is no longer needed"


def test_what_is_known_is_a_law_with_a_reason():
    assert set(known()) <= set(all_laws())
    assert all(entry["reason"] for entry in known().values())
