"""Software versions compare as numbers where they can be read."""

import pytest

from forerun.data.software import Software


@pytest.mark.parametrize(
    ("text", "number"),
    [("2.9.1", 2.09), ("2.13.0+cpu", 2.13), ("1.13", 1.13), ("2", 2.0), (None, None), ("x", None)],
)
def test_versions_become_numbers_that_sort(text, number):
    assert Software(version=text).version_number == number
