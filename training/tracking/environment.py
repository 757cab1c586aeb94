"""The software environment of a run: interpreter, platform and versions of packages."""

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "forerun",
    "lightgbm",
    "numpy",
    "pandas",
    "scikit-learn",
    "onnx",
    "onnxruntime",
    "torch",
)


def environment(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """`python`, `platform`, and each of these packages that is installed -> its version."""
    found = {"python": platform.python_version(), "platform": platform.platform(terse=True)}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
