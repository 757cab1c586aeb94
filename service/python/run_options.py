"""Options of a run in Python: those of `RunIn`, and what reading a model takes; sizes of a model.

Type checkers read the stub `run_options.pyi`, which `python docs/reference.py` writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, TypedDict, get_type_hints

from pydantic import BaseModel

from forerun.data.language_models.training import LlmTraining
from forerun.data.workload import LlmServing
from forerun.service.schemas.run_options import RunIn

READING: Final[Mapping[str, Any]] = {
    "example_inputs": Any,
    "image_size": int,
    "shapes": Mapping[str, Sequence[int | None]],
}
"""Options about reading a model -> their types.

`example_inputs` are the tensors that a torch module takes: one, a sequence, or a mapping by name;
the first dimension of each is the batch. `shapes` has the shape of an input by its name, such as
`{"images": (1, 3, 640, 640)}`, with None for a dimension that is left to the file.
"""


def keywords_of(run: type[BaseModel]) -> dict[str, Any]:
    """The keywords of a run and their types: the fields of its schema, and those of `READING`."""
    of_run = {name: own.annotation for name, own in run.model_fields.items() if name != "shape"}
    return {**of_run, **READING}


RunOptions = TypedDict("RunOptions", keywords_of(RunIn), total=False)  # type: ignore[misc]
"""How a network is run, trained and kept in memory; each option is described in `RunIn`."""

_GIVEN = ("total_parameters", "weights", "kind")
_SIZES = {own.name: get_type_hints(LlmServing)[own.name] for own in fields(LlmServing)}
LlmSizes = TypedDict(  # type: ignore[misc]
    "LlmSizes", {name: kind for name, kind in _SIZES.items() if name not in _GIVEN}, total=False
)
"""A language model by its size, and its load, where no lengths are given; as `LlmServing`."""

_APART = ("kind", "model", "layout", "lengths", "cluster")
TrainingRun = TypedDict(  # type: ignore[misc]
    "TrainingRun",
    {
        **{n: kind for n, kind in get_type_hints(LlmTraining).items() if n not in _APART},
        "lengths": Sequence[str | Mapping[str, float]],
        "cluster": Mapping[str, Any],
        **dict.fromkeys(("tokens", "usd_per_device_hour", "grid_g_co2_per_kwh"), float),
        "region": str,
    },
    total=False,
)
"""A language model in training, and what its tokens are charged with; as `TrainingFields`."""
