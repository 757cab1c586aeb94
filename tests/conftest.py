"""Fixtures shared by all floors: few, small, built in front of the reader."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before the first import of NumPy: workers that compute on every core wait for one another, which
# took twice the processor time of one thread each.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

pytest_plugins = ["tests.shapes"]

# How long an example takes says how busy the machine is, not whether a promise holds.
settings.register_profile("forerun", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("forerun")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """What reads the reference bundles or the mirror is marked `reference`."""
    for item in items:
        if {"reference", "mirror"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("reference")


REPOSITORY = Path(__file__).resolve().parent.parent


def _reference_root() -> Path:
    return Path(os.environ.get("FORERUN_REFERENCE", REPOSITORY.parent / "shared" / "datasets"))


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of reference bundles, or a skip that says why."""
    root = _reference_root()
    if not root.is_dir():
        pytest.skip(f"no reference bundles at {root}; set FORERUN_REFERENCE")
    return root


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The folder of upstream files, or a skip that says why."""
    root = Path(os.environ.get("FORERUN_MIRROR", _reference_root().parent / "mirror"))
    if not (root / "MANIFEST.json").is_file():
        pytest.skip(f"no mirror of upstream files at {root}; set FORERUN_MIRROR")
    return root
