"""Networks of timm by name, built on the meta device without weights, as graphs or table rows.

Rows of a `graphs` table are each ATen call that an eager forward pass makes. Tensors on the meta
device have shapes but no values, so a network of any size takes a second or two and no memory. What
arrives is what torch dispatches after its own decompositions: attention as its products and
softmax, `batch_norm` with the `empty` that it makes. `forerun.features.tables.timm_bench` reads the
rows back as operator graphs. Each traced network is one file of a folder, written atomically, so
that a run can be resumed; networks that fail leave no file, so the next run tries them again.
"""

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from math import prod
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from forerun.data.errors import BadTable, MissingData, MissingExtra, UnreadableModel
from forerun.data.file_store import draft_of
from forerun.data.graph import OperatorGraph, Shape
from forerun.data.lazy import nn, pd, torch
from forerun.features.readers.aten_graph import VIEWS, plain_name
from forerun.features.readers.torch_trace import declare_operators, torch_module, trace_module

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
    torch_module()
    module = module.eval().to("meta")
    examples = [x.to("meta") for x in inputs]
    why: Exception | None = None
    # The second try makes meta the default device, for modules that create tensors without a
    # device. The first does not, since modules that move tensors themselves would record calls.
    for place in (nullcontext(), torch.device("meta")):
        recorder = _Recorder()
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

    def __init__(self) -> None:
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
            if isinstance(value, torch.Tensor):
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
        return EagerCall(
            idx=len(self.calls),
            op=name,
            in_shapes=_json(shapes[:_TABLE_SHOWS]),
            out_shape=_json(made[0] if made else ()),
            preds=",".join(map(str, sorted(sources))),
            flops=_flops(name, shapes, made),
            in_elems=sum(map(prod, shapes)),
            out_elems=sum(map(prod, made)),
            param_elems=sum(t.numel() for t in inputs if isinstance(t, nn.Parameter)),
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


NetworkKey = tuple[str, int]
"""Name of the model and image size."""
Trace = Callable[[str, int], list[EagerCall]]


@dataclass(frozen=True)
class TraceJournal:
    """A folder of traced networks.

    Attributes:
        folder: folder of the files, created with the first one. Traces by other versions of the
            tracing packages belong in another folder.
    """

    folder: Path

    def path(self, key: NetworkKey) -> Path:
        """The file of a network."""
        model, size = key
        return self.folder / f"{model}@{size}.parquet"

    def has(self, key: NetworkKey) -> bool:
        """Whether a network is traced already."""
        return self.path(key).is_file()

    def write(self, key: NetworkKey, calls: Sequence[EagerCall]) -> None:
        """Write the file of a traced network atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        frame = pd.DataFrame(calls, columns=list(EagerCall._fields))
        with draft_of(self.path(key)) as draft:
            frame.to_parquet(draft, index=False)

    def table(self, keys: Sequence[NetworkKey]) -> "pd.DataFrame":
        """The `graphs` table of these networks, in their order; those without a file are left out.

        Raises:
            MissingData: none of them is traced.
            BadTable: a file is damaged.
        """
        parts = [self._rows(key) for key in keys if self.has(key)]
        if not parts:
            raise MissingData(f"No network is traced in {self.folder}.")
        return pd.concat(parts, ignore_index=True)

    def _rows(self, key: NetworkKey) -> "pd.DataFrame":
        path = self.path(key)
        try:
            frame = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise BadTable(f"Cannot read {path}, delete it to trace again: {error}") from error
        frame.insert(0, "model", key[0])
        frame.insert(1, "img_size", key[1])
        return frame


def trace_missing(
    keys: Sequence[NetworkKey], journal: TraceJournal, trace: Trace, *, workers: int = 1
) -> Iterator[tuple[NetworkKey, str]]:
    """Trace the networks that the journal lacks.

    Args:
        keys: the networks wanted.
        journal: stores each network as soon as it is traced.
        trace: called with model and image size; importable by name where `workers` is over 1.
        workers: processes that trace side by side.

    Yields:
        Each network that was tried, and why it cannot be traced; empty where it was.

    Raises:
        MissingData: a worker was killed, as by a machine that runs out of memory.
    """
    attempt = partial(_attempt, journal, trace)
    todo = [key for key in keys if not journal.has(key)]
    if workers <= 1 or len(todo) <= 1:
        yield from ((key, attempt(key)) for key in todo)
        return
    # Forked processes would share locks of libraries that run threads.
    pool = ProcessPoolExecutor(min(workers, len(todo)), mp_context=get_context("spawn"))
    try:
        futures: dict[Future[str], NetworkKey] = {pool.submit(attempt, key): key for key in todo}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        raise MissingData(
            "A process that traced networks was killed; run again with fewer workers to continue."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _attempt(journal: TraceJournal, trace: Trace, key: NetworkKey) -> str:
    try:
        journal.write(key, trace(*key))
    except UnreadableModel as error:
        return str(error)
    return ""


PREFIX = "timm:"
_CHANNELS = 3
_PACKAGES = ("timm", "torch", "torchvision")


def is_installed() -> bool:
    """Whether the packages of the `zoo` extra are installed; nothing is imported."""
    return all(find_spec(name) is not None for name in _PACKAGES)


def versions() -> dict[str, str]:
    """Versions of the packages on which a trace depends.

    Raises:
        MissingExtra: one of them is not installed.
    """
    if not is_installed():
        raise MissingExtra("Tracing timm's networks", "zoo")
    return {name: version(name).partition("+")[0] for name in ("timm", "torch")}


def build(name: str, image_size: int) -> Any:
    """An `nn.Module` on the meta device, with no weights.

    Args:
        name: a name of `timm.list_models()`, or a retired name that timm still maps.
        image_size: height and width in pixels; networks that fix their input are built for it.

    Raises:
        MissingExtra: timm, torchvision or torch is not installed.
        UnreadableModel: timm has no such network, or cannot build it at that size.
    """
    timm = _timm()
    if ":" in name:
        # `hf-hub:` and `local-dir:` would read a configuration from outside timm.
        raise UnreadableModel(PREFIX + name, "only timm's own architectures are built.")
    try:
        with torch.device("meta"), warnings.catch_warnings():
            # timm warns of retired names.
            warnings.simplefilter("ignore")
            try:
                return timm.create_model(name, pretrained=False, img_size=image_size)
            except TypeError:
                # Networks that take any size have no such argument.
                return timm.create_model(name, pretrained=False)
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UnreadableModel(
            PREFIX + name, f"timm cannot build it: {lines[0][:200].rstrip('.')}."
        ) from None


def zoo_graph(name: str, image_size: int, *, batch_size: int = 1) -> OperatorGraph:
    """The graph of a network by `torch.export`, as for any torch module.

    Raises:
        MissingExtra, UnreadableModel: as in `build`, or `torch.export` cannot trace it.
    """
    module = build(name, image_size)
    return trace_module(module, _images(image_size), batch_size=batch_size)


def zoo_calls(name: str, image_size: int) -> list[EagerCall]:
    """Rows of the timm benchmark's `graphs` table for one network, at batch 1.

    Raises:
        MissingExtra, UnreadableModel: as in `build`, or it does not run on the meta device.
    """
    return eager_calls(build(name, image_size), _images(image_size))


def networks_of(bench: "pd.DataFrame") -> list[tuple[str, int]]:
    """Model and image size of every network that a `bench` table times in inference, sorted.

    The reference table has these. About 40 others are timed only in training, on one old version
    of torch, under names that timm has retired.
    """
    pairs = bench.loc[bench["phase"] == "inference", ["model", "img_size"]].drop_duplicates()
    return sorted(zip(pairs["model"].astype(str), pairs["img_size"].astype(int), strict=True))


def _images(size: int) -> Sequence[Any]:
    return (torch.empty(1, _CHANNELS, size, size, device="meta"),)


def _timm() -> Any:
    if not is_installed():
        raise MissingExtra("Building a network of timm", "zoo")
    declare_operators()
    import timm

    return timm
