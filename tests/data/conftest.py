"""Fixtures of tests of datasets."""

import pytest


@pytest.fixture(scope="class")
def splits(request, bundle):
    """Protocol -> split of the bundle that all tests of a `DatasetContract` read."""
    return {split.protocol: split for split in request.cls.cls().splits(bundle)}
