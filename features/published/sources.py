"""Sources of published networks: a function, or a configuration of transformers.

Functions build parts that neither timm nor transformers can build by name.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, Final

from forerun.data.graph import OperatorGraph
from forerun.data.lazy import nn, torch
from forerun.features.readers.huggingface import with_attention_dropout
from forerun.features.readers.torch_trace import trace_module


def wide_squeeze_efficientnet(width: float, depth: float) -> Any:
    """An EfficientNet whose squeeze-and-excitation is a quarter as wide as the expanded block.

    In the original it is a quarter of the block's input. NVIDIA calls this `efficientnet-widese`.

    Args:
        width: multiplier of channels, 1.0 for B0.
        depth: multiplier of repeats, 1.0 for B0.
    """
    from forerun.features.readers.torch_trace import declare_operators

    declare_operators()
    from timm.models._efficientnet_builder import decode_arch_def, round_channels
    from timm.models.efficientnet import EfficientNet

    # timm divides the ratio by the expansion: 1.5 of the input is 0.25 of six times the input.
    stages = [
        ["ds_r1_k3_s1_e1_c16_se0.25"],
        ["ir_r2_k3_s2_e6_c24_se1.5"],
        ["ir_r2_k5_s2_e6_c40_se1.5"],
        ["ir_r3_k3_s2_e6_c80_se1.5"],
        ["ir_r3_k5_s1_e6_c112_se1.5"],
        ["ir_r4_k5_s2_e6_c192_se1.5"],
        ["ir_r1_k3_s1_e6_c320_se1.5"],
    ]
    rounded = partial(round_channels, multiplier=width)
    return EfficientNet(
        block_args=decode_arch_def(stages, depth),
        num_features=rounded(1280),
        stem_size=32,
        round_chs_fn=rounded,
        act_layer=nn.SiLU,
    )


def ssd300() -> Any:
    """SSD at 300 pixels on ResNet-50 up to its third stage, which keeps its resolution.

    Six maps of 38, 19, 10, 5, 3 and 1 cells a side, 81 classes (Liu et al. 2016; backbone and
    widths as in NVIDIA's and MLPerf's reference).
    """
    from forerun.features.readers.torch_trace import declare_operators

    declare_operators()
    from torchvision.models import resnet50

    widths, middles = (1024, 512, 512, 256, 256, 256), (256, 256, 128, 128, 128)
    boxes = (4, 6, 6, 6, 4, 4)

    class Ssd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            stages = list(resnet50(weights=None).children())[:7]
            first = stages[-1][0]
            for convolution in (first.conv1, first.conv2, first.downsample[0]):
                convolution.stride = (1, 1)
            self.backbone = nn.Sequential(*stages)
            self.extra = nn.ModuleList(
                _narrowing(nn, wide, middle, out, halved=level < 3)
                for level, (wide, middle, out) in enumerate(
                    zip(widths[:-1], middles, widths[1:], strict=True)
                )
            )
            pairs = tuple(zip(widths, boxes, strict=True))
            self.places = nn.ModuleList(nn.Conv2d(w, 4 * n, 3, padding=1) for w, n in pairs)
            self.classes = nn.ModuleList(nn.Conv2d(w, 81 * n, 3, padding=1) for w, n in pairs)

        def forward(self, image: Any) -> Any:
            maps = [self.backbone(image)]
            for block in self.extra:
                maps.append(block(maps[-1]))
            heads = ((self.places, 4), (self.classes, 81))
            places, classes = (
                [f(x).reshape(len(x), wide, -1) for f, x in zip(head, maps, strict=True)]
                for head, wide in heads
            )
            return torch.cat(places, 2), torch.cat(classes, 2)

    return Ssd()


def _narrowing(nn: Any, wide: int, middle: int, out: int, *, halved: bool) -> Any:
    """A 1 x 1 and a 3 x 3 convolution that halve a map's side or cut its border."""
    step = {"stride": 2, "padding": 1} if halved else {}
    return nn.Sequential(
        nn.Conv2d(wide, middle, 1, bias=False),
        nn.BatchNorm2d(middle),
        nn.ReLU(inplace=True),
        nn.Conv2d(middle, out, 3, bias=False, **step),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
    )


def with_dense_head(network: Any, positions: int) -> Any:
    """BERT for pre-training whose vocabulary head runs on masked positions only.

    Args:
        network: transformers' `BertForPreTraining`.
        positions: masked tokens per sequence.
    """

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            encoded = self.network.bert(input_ids, attention_mask=attention_mask)
            return self.network.cls(encoded[0][:, :positions], encoded[1])

    return Dense()


def with_summed_logits(network: Any) -> Any:
    """A language model whose output is the sum of its logits, one number per sequence.

    Args:
        network: a model of transformers with a language-model head.
    """

    class Summed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            answered = self.network(input_ids=input_ids, attention_mask=attention_mask)
            return answered.logits.sum((1, 2))

    return Summed()


def with_stored_positions(network: Any) -> Any:
    """BEiT with a stored index of relative positions, as in transformers of 2023.

    Later versions compute it in every layer and every pass.

    Args:
        network: transformers' `BeitForImageClassification`.
    """
    for module in network.modules():
        if hasattr(module, "generate_relative_position_index"):
            index = module.generate_relative_position_index(module.window_size)
            module.register_buffer("stored_index", index, persistent=False)
            module.generate_relative_position_index = partial(_stored, module)
    return network


def _stored(module: Any, window_size: Any) -> Any:
    return module.stored_index


@contextmanager
def einsum_as_products() -> Iterator[None]:
    """Context in which `torch.einsum` of two tensors is traced as the batched product it runs as.

    Exported programs keep `einsum` as one operator, whose arithmetic the readers do not know.
    """
    original = torch.einsum
    torch.einsum = partial(_product, original)
    try:
        yield
    finally:
        torch.einsum = original


def _product(original: Any, equation: str, *operands: Any) -> Any:
    if len(operands) != 2 or "..." in equation:
        return original(equation, *operands)
    given, _, result = equation.replace(" ", "").partition("->")
    names, tensors = given.split(","), operands
    sizes = {n: d for i in (0, 1) for n, d in zip(names[i], tensors[i].shape, strict=True)}
    left, right = names
    shared = [n for n in left if n in right and n in result]
    summed = [n for n in left if n in right and n not in result]
    rows = [n for n in left if n not in right]
    columns = [n for n in right if n not in left]

    def merged(tensor: Any, axes: str, *groups: list[str]) -> Any:
        order = [axes.index(n) for group in groups for n in group]
        return tensor.permute(order).reshape([_size(sizes, group) for group in groups])

    product = torch.bmm(
        merged(tensors[0], left, shared, rows, summed),
        merged(tensors[1], right, shared, summed, columns),
    )
    axes = [*shared, *rows, *columns]
    return product.reshape([sizes[n] for n in axes]).permute([axes.index(n) for n in result])


def _size(sizes: dict[str, int], names: list[str]) -> int:
    return prod(sizes[name] for name in names)


HUB: Final = "config.json on huggingface.co of"

Inputs = Mapping[str, tuple[int, ...]]
"""Keyword argument of `forward` -> shape at batch 1; `*_ids` and masks are integers."""


@dataclass(frozen=True)
class Built:
    """A network made by a function.

    Attributes:
        configuration: where the configuration is published.
        make: returns the module, on the default device.
        shape: shape of its only input at batch size 1.
    """

    configuration: str
    make: Callable[[], Any]
    shape: tuple[int, ...]

    def traced(self, *, marks: bool = False) -> OperatorGraph:
        """The graph at batch 1; `marks` adds what `trace_module` marks for memory."""
        with torch.device("meta"):
            module = self.make()
        return trace_module(module, (torch.empty(self.shape, device="meta"),), marks=marks)


@dataclass(frozen=True)
class Transformer:
    """A network of transformers, from fields of its configuration.

    Attributes:
        configuration: where the configuration is published.
        architecture: class of the network.
        config: class of its configuration.
        inputs: example inputs of `forward`.
        attention: `eager` (matrix products and a softmax) or `sdpa` (one fused operator).
        fields: configuration fields that differ from the class's defaults.
        wrap: adds a head or similar to the network.
    """

    configuration: str
    architecture: str
    config: str
    inputs: Inputs
    attention: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    wrap: Callable[[Any], Any] | None = None

    def traced(self, *, marks: bool = False) -> OperatorGraph:
        """The graph at batch 1; `marks` adds what `trace_module` marks for memory."""
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
