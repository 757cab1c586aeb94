"""Libraries that take long to import: each is imported when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2
    import pandas as pd
    import pandera.pandas as pa
    import torch
    from torch import nn
else:

    class _Lazy:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(import_module(self._name), attribute)

    jinja2, pa, pd = _Lazy("jinja2"), _Lazy("pandera.pandas"), _Lazy("pandas")
    nn, torch = _Lazy("torch.nn"), _Lazy("torch")

__all__ = ["jinja2", "nn", "pa", "pd", "torch"]
