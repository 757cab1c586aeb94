"""The pages that explain a kind of problem."""

import pytest

from tests.service.pages.harness import SCHEMES, WIDTHS, check_page

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_kind_of_problem_has_a_page(page_at, width, scheme):
    page = page_at("/problems/unknown-device", width, scheme)
    assert page.inner_text("h1") == "unknown-device"
    check_page(page, "problem")
