"""The sizes that the free dimensions of a model's inputs were taken at, as data and in words."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, Field

from forerun.data.graph import BindingReason, OperatorGraph
from forerun.data.workload import Network, Workload
from forerun.models.answers.wording import readable

_UNITS: Mapping[BindingReason, str] = {
    "default_image_size": " pixels",
    "default_sequence_length": " tokens",
}
_CHANGED_BY: Mapping[BindingReason, str] = {
    "default_image_size": " (--image-size changes this)",
    "default_sequence_length": " (--sequence-length changes this)",
    "default_channels": " (--shape changes this)",
    "empty_past": ", an empty key-value cache (--shape changes this)",
}
_NAMES_LISTED = 3


class BoundDimensionOut(BaseModel):
    """A free dimension of an input, and the size that it was taken at."""

    input: str = Field(description="name of the input")
    axis: int = Field(description="position of the dimension, from 0")
    symbol: str = Field(description="name of the dimension in the file; empty without one")
    size: int = Field(description="the size that was taken")
    why: BindingReason = Field(
        description="given: by the request; batch: the batch size; default_...: neither the file "
        "nor the request says it; empty_past: a key-value cache without tokens; sum_of_others: the "
        "sum of other dimensions"
    )


def bound_dimensions(asked: Workload | OperatorGraph) -> list[BoundDimensionOut]:
    """The free dimensions of a graph; those of a network at its own batch size."""
    if not isinstance(asked, Network | OperatorGraph):
        return []
    graph = asked if isinstance(asked, OperatorGraph) else asked.graph
    return [
        BoundDimensionOut(
            input=readable(bound.input),
            axis=bound.axis,
            symbol=readable(bound.symbol),
            size=asked.batch_size if bound.why == "batch" else bound.size,
            why=bound.why,
        )
        for bound in graph.bound_dimensions
    ]


def sentence(bound: Sequence[BoundDimensionOut]) -> str:
    """What the free dimensions were taken as and which option changes that; empty without any.

    The batch is left out, because the question says it.
    """
    sizes: dict[tuple[BindingReason, int], dict[str, list[str]]] = {}
    for dimension in bound:
        if dimension.why != "batch":
            inputs = sizes.setdefault((dimension.why, dimension.size), {})
            inputs.setdefault(dimension.input, []).append(_axis_name(dimension))
    return "; ".join(
        f"{_inputs(inputs)} taken as {size}{_UNITS.get(why, '')}{_CHANGED_BY.get(why, '')}"
        for (why, size), inputs in sizes.items()
    )


def _inputs(inputs: Mapping[str, Sequence[str]]) -> str:
    """`images height and width`, and the same of a few inputs that share a size."""
    axes = {name: _listed(listed) for name, listed in inputs.items()}
    if len(axes) > _NAMES_LISTED:
        return f"dimensions of {len(axes)} inputs"
    return ", ".join(f"{name} {listed}" for name, listed in axes.items())


def _listed(axes: Sequence[str]) -> str:
    return " and ".join(axes) if len(axes) <= 2 else ", ".join(axes)


def _axis_name(dimension: BoundDimensionOut) -> str:
    if dimension.why == "default_image_size" and dimension.axis in (2, 3):
        return "height" if dimension.axis == 2 else "width"
    symbol = dimension.symbol
    return symbol if symbol.isidentifier() else f"axis {dimension.axis}"
