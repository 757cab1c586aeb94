"""Libraries that take long to import: each is imported when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pandera.pandas as pa
    import torch
else:

    class _Lazy:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(import_module(self._name), attribute)

    pa, pd, torch = _Lazy("pandera.pandas"), _Lazy("pandas"), _Lazy("torch")

__all__ = ["pa", "pd", "torch"]
