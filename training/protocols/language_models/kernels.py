"""Kernels of language models measured by AIConfigurator and Vidur; GPUs, sizes or rows held out.

AIConfigurator measured matrix products, attention, experts and collectives on data-centre GPUs, and
the power of kernels in loops on three GPUs. Vidur profiled transformer operators on three GPUs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, Literal, cast

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Column, Mask, groups_of
from forerun.data.datasets.language_models.aiconfigurator import AiConfigurator, message_bytes
from forerun.data.datasets.language_models.vidur import Vidur
from forerun.data.device import Device, DeviceCatalog
from forerun.data.language_models.deployment import EngineName
from forerun.data.language_models.kernel import (
    AttentionKernel,
    CollectiveKernel,
    CollectiveName,
    ElementwiseKernel,
    ElementwiseName,
    ExpertsKernel,
    GemmKernel,
    KernelShape,
    LlmKernel,
    ProductFormat,
)
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_kernels.families import family_of, kernel_groups
from forerun.features.llm_kernels.table import KernelGroup
from forerun.training.protocols import protocol as dp

TASK_ROWS: Final = 4000
"""Most rows of a task, drawn at random with a fixed seed."""
HELD_OUT_SHARE: Final = 0.1
Groups = Callable[[Sequence[Query]], Iterator[KernelGroup]]


@dataclass(frozen=True)
class KernelRows:
    """Measured kernels of one table.

    Attributes:
        measured: n kernels with `latency_ms` and the groups `device`, `part` (family and engine),
            `op_class` (what the kernel does) and `site` (everything but the number of tokens).
        most: most training rows of each device and part.
        prefix: prefix of protocol names; empty for the only table of a dataset.
        groups: function that groups queries by family and device, for their roofline bounds.
    """

    measured: Measurements
    most: int
    prefix: str = ""
    groups: Groups = kernel_groups

    def training_rows(self) -> Measurements:
        """At most `most` rows of each device and part, drawn at random with a fixed seed.

        They have no group `site`, since a training record would list thousands of sites.
        """
        every = np.ones(len(self.measured), dtype=np.bool_)
        drawn = self.measured.take(self._drawn(every, self.most))
        groups = {name: column for name, column in drawn.groups.items() if name != "site"}
        return replace(drawn, groups=groups)

    def unseen_devices(self, key: str = "device", only: Sequence[str] = ()) -> Iterator[dp.Fold]:
        """Each device held out in turn.

        Args:
            key: grouping key of what is held out together.
            only: its values to hold out; all when empty.
        """
        names = self.measured.groups[key]
        for device in only or np.unique(names).tolist():
            yield self.fold("unseen_device", names == device)

    def held_out_sites(self) -> dp.Fold:
        """A tenth of the sites held out, on all devices."""
        sites = self.measured.groups["site"]
        distinct = np.unique(sites)
        count = max(1, round(HELD_OUT_SHARE * len(distinct)))
        chosen = np.random.default_rng(0).choice(distinct, count, replace=False)
        return self.fold("held_out_sites", np.isin(sites, chosen))

    def random_rows(self) -> dp.Fold:
        """A tenth of the rows held out at random."""
        held = np.random.default_rng(0).random(len(self.measured)) < HELD_OUT_SHARE
        return self.fold("random_rows", held)

    def fold(self, name: str, held: Mask) -> dp.Fold:
        """The given rows held out; training uses at most `most` others of each device and part.

        There is one task for each device and part. Baselines are the roofline bound, and the bound
        times the median factor of the training set.
        """
        protocol = f"{self.prefix}{name}"
        train = self.measured.take(self._drawn(~held, self.most))
        held_out = self.measured.take(self._drawn(held, TASK_ROWS))
        bound_ms = self._bounds_ms(held_out)
        factors = train.values["latency_ms"] / self._bounds_ms(train)
        ratios = replace(train, values={"factor": factors})
        factor = dp.median_by(ratios, held_out, "factor", ("part",))
        baselines = {"roofline": bound_ms, "roofline_times_factor": bound_ms * factor}
        keys, name = ("part", "device"), f"{protocol}/{{part}}"
        tasks = dp.tasks_by(held_out, keys, name, "latency_ms", baselines)
        return dp.Fold(protocol, train, list(tasks))

    def _bounds_ms(self, measured: Measurements) -> Column:
        """Roofline bound of each kernel, shape (n,), milliseconds."""
        bounds = np.empty(len(measured))
        for group in self.groups(measured.queries):
            bounds[group.rows] = group.table.bound_s * 1e3
        return bounds

    def _drawn(self, among: Mask, most: int) -> Mask:
        """Mask of at most `most` rows of each device and part."""
        groups = self.measured.groups
        rows = np.flatnonzero(among)
        rng = np.random.default_rng(0)
        drawn = np.zeros(len(among), dtype=np.bool_)
        labels = zip(groups["device"][rows].tolist(), groups["part"][rows].tolist(), strict=True)
        for positions in groups_of(labels).values():
            chosen = rng.permutation(len(positions))[:most]
            drawn[rows[np.array(positions)[chosen]]] = True
        return drawn


def kernel_measurements(
    kernels: Sequence[KernelShape],
    devices: Sequence[Device],
    values: Mapping[str, Any],
    engines: Sequence[str] = (),
    **groups: Sequence[str],
) -> Measurements:
    """N measured kernels with the groups `part` (family and engine) and `op_class`.

    Args:
        kernels: n kernels.
        devices: n devices.
        values: metric -> n values.
        engines: n engines; empty if the engine does not matter.
        groups: further groups, n values each.
    """
    used = cast(Sequence[EngineName], engines or ["vllm"] * len(kernels))
    runs = zip(kernels, used, devices, strict=True)
    parts = [family_of(kernel) for kernel in kernels]
    named = {"part": parts, "op_class": [part.split("/")[0] for part in parts]}
    if engines:
        named["part"] = [f"{part}/{engine}" for part, engine in zip(parts, engines, strict=True)]
    queries = [Query(LlmKernel(kernel, engine), device) for kernel, engine, device in runs]
    return Measurements.of(queries, values, {**named, **groups})


Phase = Literal["prefill", "decode"]
DEVICES: Final[Mapping[str, str]] = AiConfigurator.facts["devices"]
FORMATS: Final[Mapping[str, ProductFormat]] = AiConfigurator.facts["formats"]
_EXPERTS: Final = (
    "num_tokens",
    "hidden_size",
    "inter_size",
    "num_experts",
    "topk",
    "moe_tp_size",
    "moe_ep_size",
)
_OPERATIONS: Final[Mapping[str, CollectiveName]] = AiConfigurator.facts["operations"]
_SKEWED: Final = "power_law_"


def attention_kernels(frame: pd.DataFrame, phase: Phase) -> list[AttentionKernel]:
    """The kernel of each row; the cache of a decoding step holds `isl + step` tokens in all.

    Args:
        frame: table of attention.
        phase: which of the two tables it is.
    """
    names = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim")
    windows = frame["window_size"] if "window_size" in frame else pd.Series(0, frame.index)
    windows = windows.fillna(0).astype(int)
    formats = (frame[name].astype(str).map(FORMATS) for name in ("attn_dtype", "kv_cache_dtype"))
    columns = zip(*(frame[name].tolist() for name in names), windows, *formats, strict=True)
    return [
        AttentionKernel(batch, tokens, step, heads, keys, width, phase, window or None, form, cache)
        for batch, tokens, step, heads, keys, width, window, form, cache in columns
    ]


def experts_kernels(frame: pd.DataFrame) -> list[ExpertsKernel]:
    """The kernel of each row; `distribution` holds the exponent of the experts' load distribution.

    Args:
        frame: table of experts.
    """
    kinds = frame["distribution"].astype(str)
    skews = [float(kind.removeprefix(_SKEWED)) if _SKEWED in kind else 0.0 for kind in kinds]
    formats = frame["moe_dtype"].astype(str).map(FORMATS)
    columns = zip(*(frame[name].tolist() for name in _EXPERTS), skews, formats, strict=True)
    return [ExpertsKernel(*values) for values in columns]


def collectives(nccl: pd.DataFrame, custom: pd.DataFrame) -> pd.DataFrame:
    """Operations of `nccl` and `custom_allreduce`, as the median over all versions.

    The message size is that of the whole operation in bytes; the tables count elements. Kernels of
    TensorRT-LLM are launched like those that graphs replay.

    Args:
        nccl: operations of NCCL.
        custom: all-reduce operations by engines' own kernels.
    """
    library = nccl.assign(library="nccl", framework="other", message_bytes=message_bytes(nccl))
    engine_rows = custom.assign(op_name="all_reduce", message_bytes=message_bytes(custom))
    source = engine_rows["kernel_source"].astype(str)
    engine_rows["library"] = np.where(source.str.contains("eager"), "custom", "custom_graph")
    engine_rows["framework"] = (
        engine_rows["framework"].astype(str).where(source != "TRTLLM", "trtllm")
    )
    names = ["system", "framework", "library", "op_name", "num_gpus", "message_bytes"]
    both = pd.concat([library, engine_rows], ignore_index=True).astype(
        dict.fromkeys(names[:4], str)
    )
    return both.groupby(names)["latency_ms"].median().reset_index()


def collective_kernels(frame: pd.DataFrame) -> list[CollectiveKernel]:
    """The operation of each row of `collectives`."""
    operations = frame["op_name"].map(_OPERATIONS)
    names = ("num_gpus", "message_bytes", "library")
    columns = zip(operations, *(frame[name] for name in names), strict=True)
    return [
        CollectiveKernel(operation, int(n), int(size), used) for operation, n, size, used in columns
    ]


def gemm_kernels(frame: pd.DataFrame) -> list[GemmKernel]:
    """The matrix product of each row.

    Args:
        frame: table of products.
    """
    formats = frame["gemm_dtype"].astype(str).map(FORMATS)
    sizes = (frame[name].tolist() for name in ("m", "n", "k"))
    return [GemmKernel(*product) for product in zip(*sizes, formats, strict=True)]


@dataclass(frozen=True)
class KernelTable:
    """How rows of a table become measured kernels.

    Attributes:
        prefix: prefix of protocol names.
        kernels: function that gives the kernel of each row.
        site: attributes of a kernel that identify its site.
        formats: columns of number formats.
        most: most training rows of one device and part.
        read: most rows that are read for one GPU, engine and number format; None for all.
    """

    prefix: str
    kernels: Callable[[pd.DataFrame], Sequence[KernelShape]]
    site: tuple[str, ...]
    formats: tuple[str, ...] = ()
    most: int = 4000
    read: int | None = 12_000

    def rows(self, frame: pd.DataFrame, catalog: DeviceCatalog) -> KernelRows:
        """Rows of the table as measured kernels."""
        if self.read is not None:
            frame = _thinned(frame, ("system", "framework", *self.formats), self.read)
        kernels, engines = self.kernels(frame), frame["framework"].astype(str).tolist()
        sites = [" ".join(str(getattr(kernel, name)) for name in self.site) for kernel in kernels]
        devices, times = _devices(frame["system"], catalog), {"latency_ms": frame["latency_ms"]}
        rows = kernel_measurements(kernels, devices, times, engines, site=sites)
        return KernelRows(rows, self.most, self.prefix)

    def power(self, frame: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
        """Rows of a power table as measured kernels, at most `POWER_ROWS` for each GPU."""
        types = [name for name in self.formats if name in frame]
        frame = _thinned(frame, ("system", *types), POWER_ROWS)
        devices, watts = _devices(frame["system"], catalog), {"power_w": frame["power_w"]}
        return kernel_measurements(self.kernels(frame), devices, watts)


def _devices(
    names: "pd.Series[str]", catalog: DeviceCatalog, known: Mapping[str, str] = DEVICES
) -> list[Device]:
    sheets = {label: catalog.get(name) for label, name in known.items()}
    return names.astype(str).map(sheets).tolist()


def _thinned(frame: pd.DataFrame, names: tuple[str, ...], most: int) -> pd.DataFrame:
    """At most `most` rows of each group, drawn with a fixed seed."""
    drawn = frame.sample(frac=1.0, random_state=0)
    return drawn.groupby(list(names), observed=True).head(most).sort_index().reset_index(drop=True)


_HEADS: Final = ("query_heads", "key_value_heads", "head_dim", "window")
_CACHED: Final = ("attn_dtype", "kv_cache_dtype")
TABLES: Final[Mapping[str, KernelTable]] = {
    "gemm": KernelTable("gemm_", gemm_kernels, ("n", "k"), ("gemm_dtype",), 16_000, None),
    "context_attention": KernelTable(
        "prefill_", partial(attention_kernels, phase="prefill"), _HEADS, _CACHED
    ),
    "generation_attention": KernelTable(
        "decode_", partial(attention_kernels, phase="decode"), _HEADS, _CACHED
    ),
    "moe": KernelTable(
        "experts_",
        experts_kernels,
        ("hidden_size", "width", "experts", "experts_per_token"),
        ("moe_dtype",),
    ),
}
"""Tables have up to 36,000 rows of one device, format and engine."""
COLLECTIVES: Final = KernelTable(
    "collective_", collective_kernels, ("operation", "devices"), read=None
)
POWER_ROWS: Final = 3000
"""Most rows of one GPU and family; tables have up to 50,000 of each GPU."""


class KernelProtocols(dp.DatasetProtocols, ABC):
    """Base class for protocols of kernel tables."""

    @abstractmethod
    def tables(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[KernelRows]:
        """The rows of each table in turn."""

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Kernels of all GPUs, limited for each GPU and part as the table says."""
        rows = [table.training_rows() for table in self.tables(bundle, catalog)]
        return sum(rows[1:], rows[0])


class PowerOfKernels(dp.DatasetProtocols):
    """Kernels with measured power, which train `KernelPower`; each GPU is held out in turn."""

    each_held_out: ClassVar = {"power_unseen_device": "device"}

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """Kernels with measured power of all GPUs, with the group `part` (the family)."""
        rows = Measurements([], {"power_w": np.zeros(0)}, {"device": np.array([], dtype=np.str_)})
        for name, table in TABLES.items():
            if bundle.has(f"power_{name}"):
                rows = rows + table.power(bundle.table(f"power_{name}"), catalog)
        return rows, dp.EVERY

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """One task for each family; the baseline is its median share of the TDP."""
        assert train is not None, "nothing is asked of a folder that nothing is fitted on"
        shares = replace(train, values={"share": train.values["power_w"] / dp.design_w(train)})
        share = dp.median_by(shares, held_out, "share", ("part",))
        baselines = {"constant_share": share * dp.design_w(held_out)}
        keys, name = ("device", "part"), f"{protocol}/{{part}}"
        return dp.tasks_by(held_out, keys, name, "power_w", baselines)


class AiConfiguratorProtocols(KernelProtocols):
    """Kernels by engine and number format, with GPUs and sizes held out."""

    dataset = "aiconfigurator"
    parts: ClassVar = {"power": PowerOfKernels().training_rows}
    reads: ClassVar = {"gemm": ("system", "framework", "gemm_dtype", "m", "n", "k", "latency_ms")}

    def tables(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[KernelRows]:
        """Products, attention, experts and collectives, as far as the bundle has them."""
        for name in filter(bundle.has, TABLES):
            yield TABLES[name].rows(bundle.table(name), catalog)
        if bundle.has("nccl") and bundle.has("custom_allreduce"):
            both = collectives(bundle.table("nccl"), bundle.table("custom_allreduce"))
            yield COLLECTIVES.rows(both, catalog)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
        """For each table: GPUs held out, then a tenth of the sites; for products also random rows.

        Then the power of kernels, with GPUs held out.
        """
        for rows in self.tables(bundle, catalog):
            yield from rows.unseen_devices()
            yield rows.held_out_sites()
            if rows.prefix == "gemm_":
                yield rows.random_rows()
        for fold in PowerOfKernels().folds(bundle, catalog):
            yield replace(fold, source=f"{self.dataset}/power")

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dp.Tasks:
        """Products on devices that are not in the training set."""
        rows = TABLES["gemm"].rows(bundle.table("gemm"), catalog).measured
        new = rows.take(~dp.is_seen(rows, "device", seen))
        yield from dp.tasks_by(new, ("device", "part"), "gemm_unseen_device/{part}", "latency_ms")

    def reasons(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> Mapping[str, Mask]:
        """Products on devices in the training set."""
        return _trained_devices("gemm", bundle.table("gemm")["system"], DEVICES, seen)


def _trained_devices(
    table: str, names: "pd.Series[str]", devices: Mapping[str, str], seen: dp.Seen
) -> Mapping[str, Mask]:
    same = names.astype(str).map(devices).isin(list(seen.get("device", ())))
    return {f"{table}: this device is in the training set": same.to_numpy(dtype=np.bool_)}


VIDUR_DEVICES: Final[Mapping[str, str]] = Vidur.facts["devices"]
"""Device of the table -> name in the catalog."""
ELEMENTWISE: Final[Mapping[str, ElementwiseName]] = Vidur.facts["elementwise"]
"""Operator of the table -> operation, for operators that are not matrix products."""
HELD_OUT: Final = "h100-sxm-80gb"
SIZES: Final = ("n_head", "n_kv_head", "n_embd", "n_expanded_embd", "use_gated_mlp", "tp")
OPERATOR_ROWS: Final = 20_000
"""Most training rows of one device and family."""


class VidurProtocols(KernelProtocols):
    """Products, normalisation, rotary embeddings, activations, additions and embedding look-ups."""

    dataset = "vidur"
    reads: ClassVar = {"ops_mlp": ("device", "op", "num_tokens", *SIZES, "median_ms")}

    def tables(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[KernelRows]:
        """The only table."""
        yield operator_rows(bundle.table("ops_mlp"), catalog)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
        """A100 and A40 to H100, then a tenth of the rows of all GPUs."""
        (rows,) = self.tables(bundle, catalog)
        yield from rows.unseen_devices(only=[HELD_OUT])
        yield rows.random_rows()

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dp.Tasks:
        """Operators of devices that are not in the training set."""
        rows = operator_rows(bundle.table("ops_mlp"), catalog).measured
        new = rows.take(~dp.is_seen(rows, "device", seen))
        yield from dp.tasks_by(new, ("device",), "unseen_device/operators", "latency_ms")

    def reasons(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> Mapping[str, Mask]:
        """Operators of devices in the training set."""
        return _trained_devices("ops_mlp", bundle.table("ops_mlp")["device"], VIDUR_DEVICES, seen)


def operator_rows(frame: pd.DataFrame, catalog: DeviceCatalog) -> KernelRows:
    """Rows of the table `ops_mlp` as measured kernels.

    Equal kernels on one device, from repeated runs or several models, become one row, their median.

    Args:
        frame: the table.
        catalog: spec sheets.
    """
    columns = (frame[name].tolist() for name in ("op", "num_tokens", *SIZES))
    every = pd.DataFrame(
        {
            "kernel": [_vidur_kernel(*values) for values in zip(*columns, strict=True)],
            "device": frame["device"].astype(str),
            "median_ms": frame["median_ms"].to_numpy(dtype=np.float64),
        }
    )
    rows = every.groupby(["device", "kernel"], sort=False)["median_ms"].median().reset_index()
    kernels, times = rows["kernel"].tolist(), {"latency_ms": rows["median_ms"]}
    devices, engines = _devices(rows["device"], catalog, VIDUR_DEVICES), ["other"] * len(kernels)
    sites = [*map(_vidur_site, kernels)]
    measured = kernel_measurements(kernels, devices, times, engines, site=sites)
    return KernelRows(measured, OPERATOR_ROWS)


def _vidur_site(kernel: KernelShape) -> str:
    if isinstance(kernel, GemmKernel):
        return f"{kernel.n} {kernel.k}"
    assert isinstance(kernel, ElementwiseKernel)
    return str(kernel.width)


def _vidur_kernel(
    op: str,
    tokens: int,
    heads: int,
    key_value_heads: int,
    hidden: int,
    inner: int,
    gated: bool,
    tensor: int,
) -> KernelShape:
    """One operator of one layer on one of `tensor` devices."""
    head, queries = hidden // heads, heads // tensor
    keys, inner = max(key_value_heads // tensor, 1), inner // tensor
    products = {
        "attn_pre_proj": ((queries + 2 * keys) * head, hidden),
        "attn_post_proj": (hidden, queries * head),
        "mlp_up_proj": (inner * (2 if gated else 1), hidden),
        "mlp_down_proj": (hidden, inner),
    }
    if op in products:
        return GemmKernel(tokens, *products[op], "fp16")
    widths = {"attn_rope": (queries + keys) * head, "mlp_act": inner}
    return ElementwiseKernel(ELEMENTWISE[op], tokens, widths.get(op, hidden), "fp16")
