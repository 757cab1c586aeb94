"""Parsed sources are shared by the tests of this folder, and are gone after them."""

import pytest

from tests.house.sources import nodes


@pytest.fixture(scope="package", autouse=True)
def parsed_sources():
    """Half a gigabyte of syntax trees is not left to the tests that follow."""
    yield
    nodes.cache_clear()
