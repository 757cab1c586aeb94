"""Building blocks of networks in plain torch, with random weights."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

Activation = Callable[[], "nn.Module"]


@cache
def sum_of() -> Any:
    """Class: the sum of what several paths make of one input; no path is the input itself."""
    from torch import nn

    class SumOf(nn.Module):
        def __init__(self, *paths: nn.Module, after: nn.Module | None = None) -> None:
            super().__init__()
            self.paths, self.after = nn.ModuleList(paths), after or nn.Identity()

        def forward(self, x: "Tensor") -> "Tensor":
            total = self.paths[0](x)
            for path in self.paths[1:]:
                total = total + path(x)
            return self.after(total)  # type: ignore[no-any-return]

    return SumOf


@cache
def joined() -> Any:
    """Class: what several paths make of one input, side by side in channels."""
    import torch
    from torch import nn

    class Joined(nn.Module):
        def __init__(self, *paths: nn.Module) -> None:
            super().__init__()
            self.paths = nn.ModuleList(paths)

        def forward(self, x: "Tensor") -> "Tensor":
            return torch.cat([path(x) for path in self.paths], 1)

    return Joined


@cache
def scaled_by() -> Any:
    """Class: the input times what a path makes of it (squeeze and excitation, gates)."""
    from torch import nn

    class ScaledBy(nn.Module):
        def __init__(self, gate: nn.Module, value: nn.Module | None = None) -> None:
            super().__init__()
            self.gate, self.value = gate, value or nn.Identity()

        def forward(self, x: "Tensor") -> "Tensor":
            return self.value(x) * self.gate(x)  # type: ignore[no-any-return]

    return ScaledBy


@cache
def swapped() -> Any:
    """Class: a body between two exchanges of the last two dimensions, or after one."""
    from torch import nn

    class Swapped(nn.Module):
        def __init__(self, body: nn.Module, back: bool = True) -> None:
            super().__init__()
            self.body, self.back = body, back

        def forward(self, x: "Tensor") -> "Tensor":
            made = self.body(x.transpose(-1, -2))
            return made.transpose(-1, -2) if self.back else made  # type: ignore[no-any-return]

    return Swapped


@cache
def self_attention() -> Any:
    """Class: multi-head self-attention; fewer `kept` heads for keys and values share them."""
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention

    class SelfAttention(nn.Module):
        def __init__(
            self, width: int, heads: int, kept: int = 0, causal: bool = False, bias: bool = True
        ) -> None:
            super().__init__()
            self.heads, self.kept, self.causal = heads, kept or heads, causal
            self.size = width // heads
            self.widths = [width, self.kept * self.size, self.kept * self.size]
            self.enter = nn.Linear(width, sum(self.widths), bias)
            self.leave = nn.Linear(width, width, bias)

        def forward(self, x: "Tensor") -> "Tensor":
            batch, length, width = x.shape
            parts = self.enter(x).split(self.widths, -1)
            q, k, v = (p.view(batch, length, -1, self.size).transpose(1, 2) for p in parts)
            if self.kept < self.heads:
                share = self.heads // self.kept
                k, v = (p.repeat_interleave(share, dim=1) for p in (k, v))
            y = scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            return self.leave(y.transpose(1, 2).reshape(batch, length, width))  # type: ignore[no-any-return]

    return SelfAttention


@cache
def embedded() -> Any:
    """Class: tokens or patches with learned positions; patches are convolved from images."""
    import torch
    from torch import nn

    class Embedded(nn.Module):
        def __init__(self, source: nn.Module, length: int, width: int) -> None:
            super().__init__()
            self.source = source
            self.places = nn.Parameter(torch.zeros(length, width))

        def forward(self, x: "Tensor") -> "Tensor":
            made = self.source(x)
            if made.dim() == 4:
                made = made.flatten(2).transpose(1, 2)
            return made + self.places  # type: ignore[no-any-return]

    return Embedded


@cache
def recurrent() -> Any:
    """Class: the outputs of an LSTM."""
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self, width: int, layers: int) -> None:
            super().__init__()
            self.cells = nn.LSTM(width, width, layers, batch_first=True)

        def forward(self, x: "Tensor") -> "Tensor":
            return self.cells(x)[0]  # type: ignore[no-any-return]

    return Recurrent


@cache
def around() -> Any:
    """Class: a U's level: its input joined to what lies below, halved and doubled again."""
    import torch
    from torch import nn

    class Around(nn.Module):
        def __init__(self, before: nn.Module, below: nn.Module, after: nn.Module) -> None:
            super().__init__()
            self.before, self.below, self.after = before, below, after

        def forward(self, x: "Tensor") -> "Tensor":
            kept = self.before(x)
            return self.after(torch.cat([kept, self.below(kept)], 1))  # type: ignore[no-any-return]

    return Around


def conv(
    width: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1,
    act: Activation | None = None,
) -> "nn.Module":  # fmt: skip
    """Convolution, batch normalisation, and an activation where one is given."""
    from torch import nn

    parts: list[nn.Module] = [
        nn.Conv2d(width, out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out),
    ]
    return nn.Sequential(*parts, *([act()] if act else []))


def squeeze(width: int, inner: int, act: Activation) -> "nn.Module":
    """Squeeze and excitation."""
    from torch import nn

    gate = (nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, inner, 1), act())
    made: nn.Module = scaled_by()(nn.Sequential(*gate, nn.Conv2d(inner, width, 1), nn.Sigmoid()))
    return made


def classifier(width: int, classes: int = 1000) -> Sequence["nn.Module"]:
    """Mean over the image, then one linear layer."""
    from torch import nn

    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)
