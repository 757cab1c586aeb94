"""Sources of published networks: a function, or a configuration of transformers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from forerun.data.graph import OperatorGraph
from forerun.features.published.modules import einsum_as_products
from forerun.features.readers.huggingface import with_attention_dropout
from forerun.features.readers.torch_trace import trace_module

EXAMPLES: Final = "NVIDIA/DeepLearningExamples, PyTorch"
HUB: Final = "config.json on huggingface.co of"

Inputs = Mapping[str, tuple[int, ...]]
"""Keyword argument of `forward` -> shape at batch 1; `*_ids` and masks are integers."""


@dataclass(frozen=True)
class Built:
    """A network made by a function.

    Attributes:
        configuration: where the configuration stands.
        make: returns the module, on whatever device is the default.
        shape: shape of its one input at batch size 1.
    """

    configuration: str
    make: Callable[[], Any]
    shape: tuple[int, ...]

    def traced(self, *, marks: bool = False) -> OperatorGraph:
        """The graph at batch 1; with `marks`, as `trace_module` has them for memory."""
        import torch

        with torch.device("meta"):
            module = self.make()
        return trace_module(module, (torch.empty(self.shape, device="meta"),), marks=marks)


@dataclass(frozen=True)
class Transformer:
    """A network of transformers, from fields of its configuration.

    Attributes:
        configuration: where the configuration stands.
        architecture: class of the network.
        config: class of its configuration.
        inputs: example inputs of `forward`.
        attention: `eager` (matrix products and a softmax) or `sdpa` (one fused operator).
        fields: of the configuration, where they are not the class's defaults.
        wrap: puts a head or the like around the network.
    """

    configuration: str
    architecture: str
    config: str
    inputs: Inputs
    attention: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    wrap: Callable[[Any], Any] | None = None

    def traced(self, *, marks: bool = False) -> OperatorGraph:
        """The graph at batch 1; with `marks`, as `trace_module` has them for memory."""
        import torch
        import transformers

        config = getattr(transformers, self.config)(**self.fields)
        config._attn_implementation = self.attention
        config.use_cache = False
        with torch.device("meta"):
            module = getattr(transformers, self.architecture)(config)
            module = self.wrap(module) if self.wrap else module
        given = {
            name: torch.empty(
                shape,
                dtype=torch.int64 if name.endswith(("_ids", "_mask")) else torch.float32,
                device="meta",
            )
            for name, shape in self.inputs.items()
        }
        with einsum_as_products():
            graph = trace_module(module, (), given, marks=marks)
        return with_attention_dropout(graph, config) if marks else graph


Source = Built | Transformer
Entry = tuple[str, Source]
