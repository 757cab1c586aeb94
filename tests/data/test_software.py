"""Software versions compare as numbers where they can be read."""

import pytest

from forerun.data.software import Software


@pytest.mark.parametrize(
    ("text", "number"),
    [("2.9.1", 2.09), ("2.13.0+cpu", 2.13), ("1.13", 1.13), ("2", 2.0), ("2+cpu", 2.0),
     ("2020.2", 2020.02), (None, None), ("", None), ("x", None), ("2.x", None), ("-1", None)],
)  # fmt: skip
def test_versions_become_numbers_that_sort(text, number):
    assert Software(version=text).version_number == number


@pytest.mark.parametrize("version", ["9" * 400, "1." + "9" * 400, "²"])
def test_a_version_that_is_no_number_of_a_release_is_not_known(version):
    assert Software(version=version).version_number is None
