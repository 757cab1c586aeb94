"""Fixtures of tests of datasets."""

import pytest

from forerun.data.bundle import Bundle


@pytest.fixture(scope="class")
def splits(request, bundle):
    """Protocol -> split of the bundle that all tests of a `DatasetContract` read."""
    return {split.protocol: split for split in request.cls.cls().splits(bundle)}


@pytest.fixture(scope="class")
def whole(request, reference):
    """The reference bundle of a `DatasetContract`'s dataset."""
    return Bundle.open(reference / request.cls.cls.name)
