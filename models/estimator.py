"""The conventions of scikit-learn's estimators: settings are read by name, and `clone` unfits."""

from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, ClassVar, Final, Self

SETTING: Final[Mapping[str, bool]] = {"setting": True}
"""Metadata of the fields that a user chooses; all other fields are results of `fit` and `adapt`."""


class Estimator:
    """A frozen dataclass whose settings are the fields declared with `metadata=SETTING`.

        @dataclass(frozen=True)
        class Mine(Estimator):
            trees: int = field(default=100, metadata=SETTING)
            boosters: Mapping[str, Booster] = field(default_factory=dict)

    `sklearn.base.clone` makes an unfitted predictor with equal settings, so that search over
    settings and cross-validation work as for scikit-learn's own estimators. A setting may itself be
    an estimator, or a tuple of estimators.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Name -> value of each setting.

        Args:
            deep: adds the settings of settings that are estimators, named `SETTING__NAME`.
        """
        params = {f.name: getattr(self, f.name) for f in fields(self) if "setting" in f.metadata}
        if deep:
            parts = {name: part for name, part in params.items() if isinstance(part, Estimator)}
            for name, part in parts.items():
                params |= {f"{name}__{own}": value for own, value in part.get_params().items()}
        return params

    def with_params(self, **changes: Any) -> Self:
        """An unfitted predictor with these settings; settings that are not given keep their values.

        Estimators among the settings become unfitted too, except where one is given.

        Args:
            changes: settings by the names of `get_params`, also as `SETTING__NAME`.

        Raises:
            ValueError: there is no such setting.
        """
        params = {name: _unfitted(value) for name, value in self.get_params(deep=False).items()}
        for key in sorted(changes, key=lambda key: key.count("__")):
            name, _, inner = key.partition("__")
            part = params.get(name)
            if name not in params or (inner and not isinstance(part, Estimator)):
                raise ValueError(
                    f"{type(self).__name__} has no setting {key!r}; it has "
                    f"{', '.join(self.get_params()) or 'none'}."
                )
            value = changes[key]
            params[name] = part.with_params(**{inner: value}) if inner and part else value
        return type(self)(**params)

    def __sklearn_clone__(self) -> Self:
        return self.with_params()


def _unfitted(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_unfitted, value))
    return value.with_params() if isinstance(value, Estimator) else value
