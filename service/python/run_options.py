"""Options of a run in Python: those of `RunIn`, and what reading a model takes.

Type checkers read the stub `run_options.pyi`, which `python docs/reference.py` writes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from pydantic import BaseModel

from forerun.service.schemas.run_options import RunIn

READING: Mapping[str, Any] = {
    "example_inputs": Any,
    "image_size": int,
    "shapes": Mapping[str, Sequence[int | None]],
}
"""Options about reading a model -> their types.

`example_inputs` are the tensors that a torch module takes: one, a sequence, or a mapping by name;
the first dimension of each is the batch. `shapes` has the shape of an input by its name, such as
`{"images": (1, 3, 640, 640)}`, with None for a dimension that is left to the file.
"""


def options_of(run: type[BaseModel]) -> Any:
    """The keywords of a run: the fields of its schema, and those of `READING`."""
    of_run = {name: own.annotation for name, own in run.model_fields.items() if name != "shape"}
    return TypedDict("RunOptions", {**of_run, **READING}, total=False)  # type: ignore[misc]


RunOptions = options_of(RunIn)
"""How a network is run, trained and kept in memory; each option is described in `RunIn`."""
