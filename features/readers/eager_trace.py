"""Torch modules as rows of a `graphs` table: each ATen call that an eager forward pass makes.

The module runs on the meta device, where tensors have shapes but no values, so a network of any
size takes a second or two and no memory. What arrives is what torch dispatches after its own
decompositions: attention as its products and softmax, `batch_norm` with the `empty` that it makes.
`forerun.features.tables.timm_bench` reads the rows back as operator graphs.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from math import prod
from typing import Any, NamedTuple

from forerun.data.errors import MissingExtra, UnreadableModel
from forerun.data.graph import Shape
from forerun.features.readers.aten import VIEWS, plain_name

_TABLE_KEEPS = frozenset("as_strided unfold unsafe_split native_dropout".split())
"""Views that the table has as rows; `timm_tables` folds those that it takes for views."""
_FOLDED = VIEWS - _TABLE_KEEPS
_TABLE_SHOWS = 4
"""A row shows at most this many input shapes; `in_elems` counts all of them."""


class EagerCall(NamedTuple):
    """One row of a `graphs` table, less the model and the image size that it belongs to.

    Attributes:
        idx: position in the order of calls, views left out.
        op: plain ATen name.
        in_shapes: JSON, the first four input tensors, weights among them.
        out_shape: JSON, the first output.
        preds: comma list of the `idx` that made its inputs, through views.
        flops: twice the multiply-accumulates of convolutions and products, else 0.
        in_elems: elements of all input tensors.
        out_elems: elements of all outputs.
        param_elems: elements of inputs that are parameters themselves, not views of them.
        attr: JSON of a convolution's kernel, stride, padding and groups, `{"k": [3, 3], "s": ...,
            "p": ..., "g": 1}`; empty elsewhere. Dilation is left out, as in the benchmark's table:
            the row's shapes already reflect it.
    """

    idx: int
    op: str
    in_shapes: str
    out_shape: str
    preds: str
    flops: int
    in_elems: int
    out_elems: int
    param_elems: int
    attr: str


def eager_calls(module: Any, inputs: Sequence[Any]) -> list[EagerCall]:
    """Calls of one forward pass in evaluation mode on the meta device.

    Args:
        module: an `nn.Module`; it is moved to the meta device, and its weights are lost.
        inputs: positional example tensors.

    Raises:
        MissingExtra: torch is not installed.
        UnreadableModel: the module cannot run on the meta device, as where control flow depends
            on values.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtra("Tracing a torch module", "train") from None
    module = module.eval().to("meta")
    examples = [x.to("meta") for x in inputs]
    why: Exception | None = None
    # The second try makes meta the default device, for modules that create tensors without a
    # device. The first does not, since modules that move tensors themselves would record calls.
    for place in (nullcontext(), torch.device("meta")):
        recorder = _Recorder(torch)
        try:
            with place, torch.no_grad(), recorder.mode():
                module(*examples)
        except Exception as error:
            # Any exception of a user's module means that it cannot be traced like this.
            why = error
            continue
        return recorder.calls
    reason = (str(why).strip().splitlines() or [type(why).__name__])[0][:200]
    raise UnreadableModel(type(module).__name__, f"it does not run on meta: {reason}")


class _Recorder:
    """Records calls as torch dispatches them."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._producers: dict[int, frozenset[int]] = {}
        self._alive: list[Any] = []
        self.calls: list[EagerCall] = []

    def mode(self) -> Any:
        """A context in which every dispatched call is recorded."""
        from torch.utils._python_dispatch import TorchDispatchMode

        recorder = self

        class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                result = func(*args, **(kwargs or {}))
                recorder.add(plain_name(str(func)), args, kwargs or {}, result)
                return result

        return Recording()  # type: ignore[no-untyped-call]

    def add(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Record one call; a view only passes on the producer of its base."""
        inputs = list(self._tensors((*args, *kwargs.values())))
        outputs = list(self._tensors((result,)))
        sources = frozenset[int]().union(*(self._producers.get(id(t), ()) for t in inputs))
        if name not in _FOLDED:
            self.calls.append(self._call(name, args, inputs, outputs, sources))
            sources = frozenset((len(self.calls) - 1,))
        for tensor in outputs:
            self._producers[id(tensor)] = sources
        # Kept alive, since the id of a freed tensor would be reused.
        self._alive += outputs

    def _tensors(self, values: Iterable[Any]) -> Iterable[Any]:
        for value in values:
            if isinstance(value, self._torch.Tensor):
                yield value
            elif isinstance(value, list | tuple):
                yield from self._tensors(value)

    def _call(
        self,
        name: str,
        args: Sequence[Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        sources: frozenset[int],
    ) -> EagerCall:
        shapes = [tuple(t.shape) for t in inputs]
        made = [tuple(t.shape) for t in outputs]
        parameter = self._torch.nn.Parameter
        return EagerCall(
            idx=len(self.calls),
            op=name,
            in_shapes=_json(shapes[:_TABLE_SHOWS]),
            out_shape=_json(made[0] if made else ()),
            preds=",".join(map(str, sorted(sources))),
            flops=_flops(name, shapes, made),
            in_elems=sum(map(prod, shapes)),
            out_elems=sum(map(prod, made)),
            param_elems=sum(t.numel() for t in inputs if isinstance(t, parameter)),
            attr=_convolution(args, shapes) if name == "convolution" else "",
        )


def _json(shapes: object) -> str:
    return json.dumps(shapes, separators=(",", ":"))


def _flops(name: str, shapes: Sequence[Shape], made: Sequence[Shape]) -> int:
    """Twice the multiply-accumulates."""
    if name == "convolution":
        return 2 * prod(made[0]) * prod(shapes[1][1:])
    if name in ("mm", "bmm"):
        return 2 * prod(made[0]) * shapes[0][-1]
    if name in ("addmm", "baddbmm"):
        return 2 * prod(made[0]) * shapes[1][-1]
    return 0


def _convolution(args: Sequence[Any], shapes: Sequence[Shape]) -> str:
    """`aten.convolution(input, weight, bias, stride, padding, dilation, transposed, _, groups)`."""
    kernel, stride, padding = (list(v) for v in (shapes[1][2:], args[3], args[4]))
    return json.dumps({"k": kernel, "s": stride, "p": padding, "g": args[8]})
