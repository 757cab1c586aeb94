"""A plugin that checks the shapes of arrays: a call that contradicts its annotations raises.

The modules of `CHECKED` are imported with jaxtyping's hook, which has beartype check arguments and
results of each function and fields of each dataclass. `tests/conftest.py` names this plugin, so
that the hook is there before the first module is imported. Without the packages, which only the
dev extra brings, nothing is checked.
"""

import os
from importlib.util import find_spec
from typing import Any, Self

CHECKED = (
    "forerun.features.hardware",
    "forerun.features.nas_cells",
    "forerun.features.networks.kernel_floor",
    "forerun.features.operators",
    "forerun.features.power",
    "forerun.models.conformal",
    "forerun.models.domain",
    "forerun.models.gaussian_process",
    "forerun.models.gradient_boosting",
    "forerun.training.scores",
)
"""Packages and modules whose annotations give shapes."""


def check_shapes(*modules):
    """Check the calls of modules that are imported from now on."""
    from jaxtyping import install_import_hook

    # The variable is for this process: commands that tests start are as those of users.
    os.environ["FORERUN_CHECK_SHAPES"] = "1"
    import forerun.data.shapes

    del os.environ[forerun.data.shapes.CHECK_SHAPES]
    install_import_hook(modules, "tests.shapes.typechecked")


def typechecked(function):
    """Decorate with beartype, for which an int is a float as it is for static type checkers."""
    from beartype import BeartypeConf, beartype

    # beartype knows what `Self` is only in classes that it decorates, and the hook does functions.
    hints = function.__annotations__.items()
    function.__annotations__ = {name: Any if hint is Self else hint for name, hint in hints}
    return beartype(function, conf=BeartypeConf(is_pep484_tower=True))


if find_spec("jaxtyping") and find_spec("beartype"):
    check_shapes(*CHECKED)
