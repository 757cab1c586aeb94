"""Settings of predictors as flat parameters of a run: plain values, named with dots."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

from forerun.models.estimator import Estimator

Plain = bool | int | float | str | None


def flat_parameters(predictor: object) -> dict[str, Plain]:
    """Name -> value of each setting of a predictor, and of the estimators among its settings.

    Settings of settings are named `OUTER.INNER`, members of tuples by their position. Of an object
    that is neither plain nor made of plain values, the name of its type is given.

    Args:
        predictor: an estimator; any other object has no settings.
    """
    if not isinstance(predictor, Estimator):
        return {}
    found: dict[str, Plain] = {}
    for name, value in predictor.get_params(deep=False).items():
        found |= _flat(name, value)
    return found


def _flat(name: str, value: object) -> dict[str, Plain]:
    """A value as plain ones, by names that begin with its own."""
    if value is None or isinstance(value, bool | int | float | str):
        return {name: value}
    inner: dict[str, object]
    if isinstance(value, Estimator):
        inner = {"predictor": getattr(value, "name", type(value).__name__)}
        inner |= value.get_params(deep=False)
    elif isinstance(value, Mapping):
        inner = {str(key): part for key, part in value.items()}
    elif isinstance(value, list | tuple):
        inner = {str(position): part for position, part in enumerate(value)}
    elif is_dataclass(value):
        inner = {f.name: getattr(value, f.name) for f in fields(value)}
    else:
        return {name: type(value).__name__}
    return {
        key: v for part, own in inner.items() for key, v in _flat(f"{name}.{part}", own).items()
    }
