"""Tests that trace networks of timm or torchvision: marked `zoo`, skipped where these are not."""

import pytest

from forerun.features.readers.model_zoo import is_installed


def needs_zoo(test):
    """Decorates a test that needs the `zoo` extra."""
    missing = pytest.mark.skipif(not is_installed(), reason="needs timm: scripts/install zoo")
    return pytest.mark.zoo(missing(test))
