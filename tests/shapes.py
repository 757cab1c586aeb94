"""A plugin that checks the shapes of arrays: a call that contradicts its annotations raises.

The modules of `CHECKED` are imported with jaxtyping's hook, which has beartype check arguments and
results of each function and fields of each dataclass. `tests/conftest.py` names this plugin, so
that the hook is there before the first module is imported. Without the packages, which only the
dev extra brings, nothing is checked. Of each function the first `CHECKED_CALLS` calls of a test are
checked: a check takes a hundred times as long as what small functions do, and tests that fit make
hundreds of thousands of calls.
"""

import os
from collections import Counter
from functools import wraps
from importlib.util import find_spec
from typing import Any, Self

CHECKED = (
    "forerun.features.hardware",
    "forerun.features.nas_cells",
    "forerun.features.operators",
    "forerun.features.power",
    "forerun.models.conformal",
    "forerun.models.domain",
    "forerun.models.gaussian_process",
    "forerun.models.gradient_boosting",
    "forerun.training.monitoring",
    "forerun.training.scores",
)
"""Packages and modules whose annotations give shapes."""

CHECKED_CALLS = 3
_calls: Counter[object] = Counter()


def pytest_runtest_setup():
    """Every test has all of its checks, whatever ran before it."""
    _calls.clear()


def check_shapes(*modules):
    """Check the calls of modules that are imported from now on."""
    import jaxtyping

    # The variable is for this process: commands that tests start are as those of users.
    os.environ["FORERUN_CHECK_SHAPES"] = "1"
    import forerun.data.shapes

    del os.environ[forerun.data.shapes.CHECK_SHAPES]
    # The hook decorates by `jaxtyping.jaxtyped(typechecker=...)`, found when a module is imported.
    jaxtyping.jaxtyped = _first_calls(jaxtyping.jaxtyped)
    jaxtyping.install_import_hook(modules, "tests.shapes.typechecked")


def _first_calls(jaxtyped):
    """`jaxtyped`, for the first calls of a function or of a dataclass's constructor."""

    def with_options(**options):
        def decorate(decorated):
            if not isinstance(decorated, type):
                return _checked_first(decorated, jaxtyped(**options)(decorated))
            plain = decorated.__init__
            checked = jaxtyped(**options)(decorated)
            if checked.__init__ is not plain:
                checked.__init__ = _checked_first(plain, checked.__init__)
            return checked

        return decorate

    return with_options


def _checked_first(plain, checked):
    @wraps(plain)
    def called(*arguments, **named):
        _calls[called] += 1
        chosen = checked if _calls[called] <= CHECKED_CALLS else plain
        return chosen(*arguments, **named)

    return called


def typechecked(function):
    """Decorate with beartype, for which an int is a float as it is for static type checkers."""
    from beartype import BeartypeConf, beartype

    # beartype knows what `Self` is only in classes that it decorates, and the hook does functions.
    hints = function.__annotations__.items()
    function.__annotations__ = {name: Any if hint is Self else hint for name, hint in hints}
    return beartype(function, conf=BeartypeConf(is_pep484_tower=True))


if find_spec("jaxtyping") and find_spec("beartype"):
    check_shapes(*CHECKED)
