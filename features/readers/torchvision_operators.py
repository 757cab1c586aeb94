"""Make torchvision importable with another build of torch: declare operators, run none.

A torchvision built for CUDA does not load its compiled operators under a torch for the CPU, and
then cannot be imported. timm and transformers import it to process images; no graph calls those
operators.
"""

from functools import lru_cache
from importlib.util import find_spec
from typing import Any

_MISSING = ("nms", "qnms")
_SCHEMA = "Tensor dets, Tensor scores, float iou_threshold"


@lru_cache(maxsize=1)
def declare_operators() -> Any:
    """Import torchvision, with its operators declared where it did not bring them.

    Returns:
        What holds the declarations, kept alive by this function; None where none was needed, or
        torchvision is not installed.
    """
    if find_spec("torchvision") is None:
        return None
    from torch import library

    try:
        import torchvision
    except RuntimeError:
        declared: Any = library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in _MISSING:
            declared.define(f"{operator}({_SCHEMA}) -> Tensor")
        import torchvision  # noqa: F401

        return declared
    return None
