"""Measured kernels of language models, of AIConfigurator and Vidur: GPUs, sizes and rows held out.

AIConfigurator measured products, attention, experts and collectives on data-centre GPUs, and the
power of kernels in loops on three; Vidur profiled operators of transformers on three GPUs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Column, Mask, Names, groups_of
from forerun.data.datasets.language_models.aiconfigurator import AiConfigurator
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
from forerun.models.kernel_experts.llm_kernels import KernelPower
from forerun.training.protocols.protocol import (
    DatasetProtocols,
    Fold,
    Seen,
    Task,
    Tasks,
    counted,
    design_w,
    is_seen,
    median_by,
    tasks_by,
)

TASK_ROWS: Final = 4000
"""Most rows of a task, drawn at random with a fixed seed."""
HELD_OUT_SHARE: Final = 0.1
Groups = Callable[[Sequence[Query]], Iterator[KernelGroup]]


@dataclass(frozen=True)
class KernelRows:
    """Measured kernels of one table.

    Attributes:
        measured: n kernels with `latency_ms`, the groups `device`, `part` (family and engine),
            `op_class` (what the kernel does) and `site` (what stays equal where only the number of
            tokens varies).
        prefix: what names of protocols begin with; empty for the only table of a dataset.
        groups: the kernels of queries by family and device, which give bounds.
    """

    measured: Measurements
    prefix: str = ""
    groups: Groups = kernel_groups

    @classmethod
    def of(
        cls,
        kernels: Sequence[KernelShape],
        engines: Sequence[EngineName],
        devices: Sequence[Device],
        latency_ms: Column,
        sites: Names,
        prefix: str = "",
    ) -> "KernelRows":
        """N measured kernels.

        Args:
            kernels: n kernels.
            engines: n engines.
            devices: n devices.
            latency_ms: (n,) measured times, milliseconds.
            sites: (n,) names of sites within a family.
            prefix: as the attribute.
        """
        queries = [
            Query(LlmKernel(kernel, engine), device)
            for kernel, engine, device in zip(kernels, engines, devices, strict=True)
        ]
        parts = [f"{family_of(k)}/{e}" for k, e in zip(kernels, engines, strict=True)]
        groups = {"part": parts, "op_class": [part.split("/")[0] for part in parts], "site": sites}
        return cls(Measurements.of(queries, {"latency_ms": latency_ms}, groups), prefix)

    def training_rows(self, most: int) -> Measurements:
        """At most so many rows of each device and part, drawn at random with a fixed seed.

        They have no group `site`: a training record would list thousands of sites.
        """
        every = np.ones(len(self.measured), dtype=np.bool_)
        drawn = self.measured.take(self._drawn(every, most))
        groups = {name: column for name, column in drawn.groups.items() if name != "site"}
        return replace(drawn, groups=groups)

    def unseen_devices(self, most: int, only: Sequence[str] = ()) -> Iterator[Fold]:
        """Each device is held out: rows of the others train, at most `most` of each part.

        Args:
            most: training rows of each device and part.
            only: devices to hold out; all when empty.
        """
        names = self.measured.groups["device"]
        for device in only or np.unique(names).tolist():
            yield self.fold("unseen_device", names == device, most)

    def held_out_sites(self, most: int) -> Fold:
        """A tenth of the sites is held out on all devices."""
        sites = self.measured.groups["site"]
        distinct = np.unique(sites)
        count = max(1, round(HELD_OUT_SHARE * len(distinct)))
        chosen = np.random.default_rng(0).choice(distinct, count, replace=False)
        return self.fold("held_out_sites", np.isin(sites, chosen), most)

    def random_rows(self, most: int) -> Fold:
        """A tenth of the rows is held out at random."""
        held = np.random.default_rng(0).random(len(self.measured)) < HELD_OUT_SHARE
        return self.fold("random_rows", held, most)

    def fold(self, name: str, held: Mask, most: int) -> Fold:
        """These rows held out; at most so many others of each device and part train."""
        protocol = f"{self.prefix}{name}"
        train = self.measured.take(self._drawn(~held, most))
        tasks = kernel_tasks(
            self.measured.take(self._drawn(held, TASK_ROWS)), train, protocol, self.groups
        )
        return Fold(protocol, train, tasks)

    def _drawn(self, among: Mask, most: int) -> Mask:
        """Mask of at most `most` rows of each device and part."""
        groups = self.measured.groups
        rows = np.flatnonzero(among)
        rng = np.random.default_rng(0)
        drawn = np.zeros(len(among), dtype=np.bool_)
        labels = zip(groups["device"][rows].tolist(), groups["part"][rows].tolist(), strict=True)
        for own in groups_of(labels).values():
            chosen = rng.permutation(len(own))[:most]
            drawn[rows[np.array(own)[chosen]]] = True
        return drawn


def kernel_tasks(
    held_out: Measurements, train: Measurements, protocol: str, groups: Groups = kernel_groups
) -> list[Task]:
    """One task for each device and part, with the roofline bound and that times one factor.

    Args:
        held_out: held-out kernels.
        train: training set, which the factor is the median of.
        protocol: name.
        groups: the kernels of queries by family and device.
    """
    bound_ms = bounds_ms(held_out, groups)
    ratios = replace(
        train, values={"factor": train.values["latency_ms"] / bounds_ms(train, groups)}
    )
    factor = median_by(ratios, held_out, "factor", ("part",))
    baselines = {"roofline": bound_ms, "roofline_times_factor": bound_ms * factor}
    keys, name = ("part", "device"), f"{protocol}/{{part}}"
    return list(tasks_by(held_out, keys, name, "latency_ms", baselines))


def bounds_ms(measured: Measurements, groups: Groups = kernel_groups) -> Column:
    """Roofline bound of each kernel, shape (n,), milliseconds."""
    bounds = np.empty(len(measured))
    for group in groups(measured.queries):
        bounds[group.rows] = group.table.bound_s * 1e3
    return bounds


Phase = Literal["prefill", "decode"]
DEVICES: Final[Mapping[str, str]] = AiConfigurator.facts["devices"]
FORMATS: Final[Mapping[str, ProductFormat]] = AiConfigurator.facts["formats"]
ENGINES: Final[Mapping[str, EngineName]] = {
    "sglang": "sglang",
    "vllm": "vllm",
    "trtllm": "trtllm",
    "other": "other",
}
ATTENTION_TABLES: Final = ("context_attention", "generation_attention")
_EXPERTS: Final = (
    "num_tokens",
    "hidden_size",
    "inter_size",
    "num_experts",
    "topk",
    "moe_tp_size",
    "moe_ep_size",
)
ROWS_READ: Final = 12_000
"""Most rows of a table that are read for one GPU, engine and number format."""
_ELEMENT_BYTES: Final = {"half": 2, "bfloat16": 2, "int8": 1}
_OPERATIONS: Final[Mapping[str, CollectiveName]] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
_SKEWED: Final = "power_law_"


def attention_rows(frame: pd.DataFrame, catalog: DeviceCatalog, table: str) -> KernelRows:
    """Rows of `context_attention` or `generation_attention` as measured kernels.

    Args:
        frame: the table.
        catalog: spec sheets.
        table: its name.
    """
    frame = _thinned(frame, ("system", "framework", "attn_dtype", "kv_cache_dtype"))
    phase: Phase = "decode" if table == "generation_attention" else "prefill"
    kernels = attention_kernels(frame, phase)
    sites = [f"{k.query_heads} {k.key_value_heads} {k.head_dim} {k.window}" for k in kernels]
    return _rows(kernels, frame, catalog, sites, f"{phase}_")


def attention_kernels(frame: pd.DataFrame, phase: Phase) -> list[AttentionKernel]:
    """The kernel of each row; the cache of a decoding step holds `isl + step` tokens in all.

    Args:
        frame: table of attention.
        phase: which of both tables it is.
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


def experts_rows(frame: pd.DataFrame, catalog: DeviceCatalog) -> KernelRows:
    """Rows of `moe` as measured kernels.

    Args:
        frame: the table.
        catalog: spec sheets.
    """
    frame = _thinned(frame, ("system", "framework", "moe_dtype"))
    kernels = experts_kernels(frame)
    sites = [f"{k.hidden_size} {k.width} {k.experts} {k.experts_per_token}" for k in kernels]
    return _rows(kernels, frame, catalog, sites, "experts_")


def experts_kernels(frame: pd.DataFrame) -> list[ExpertsKernel]:
    """The kernel of each row; the exponent of the experts' loads stands in `distribution`.

    Args:
        frame: table of experts.
    """
    kinds = frame["distribution"].astype(str)
    skews = [float(kind.removeprefix(_SKEWED)) if _SKEWED in kind else 0.0 for kind in kinds]
    formats = frame["moe_dtype"].astype(str).map(FORMATS)
    columns = zip(*(frame[name].tolist() for name in _EXPERTS), skews, formats, strict=True)
    return [ExpertsKernel(*values) for values in columns]


def collective_rows(nccl: pd.DataFrame, custom: pd.DataFrame, catalog: DeviceCatalog) -> KernelRows:
    """Rows of `nccl` and `custom_allreduce` as measured kernels, the median of all versions.

    The message is that of the whole operation in bytes: the tables count elements. Kernels of
    TensorRT-LLM are launched like those that graphs replay.

    Args:
        nccl: operations of NCCL.
        custom: sums by kernels of engines.
        catalog: spec sheets.
    """
    library = nccl.assign(library="nccl", framework="other", dtype=nccl["nccl_dtype"].astype(str))
    own = custom.assign(op_name="all_reduce", dtype=custom["allreduce_dtype"].astype(str))
    source = own["kernel_source"].astype(str)
    own["library"] = np.where(source.str.contains("eager"), "custom", "custom_graph")
    own["framework"] = own["framework"].astype(str).where(source != "TRTLLM", "trtllm")
    names = ["system", "framework", "library", "op_name", "num_gpus", "message_bytes"]
    both = pd.concat([library, own], ignore_index=True)
    both["message_bytes"] = both["message_size_elems"] * both["dtype"].map(_ELEMENT_BYTES)
    both = both.astype(dict.fromkeys(names[:4], str))
    frame = both.groupby(names)["latency_ms"].median().reset_index()
    operations = frame["op_name"].map(_OPERATIONS)
    columns = zip(
        operations, frame["num_gpus"], frame["message_bytes"], frame["library"], strict=True
    )
    kernels = [CollectiveKernel(one, int(n), int(size), used) for one, n, size, used in columns]
    sites = [f"{kernel.operation} {kernel.devices}" for kernel in kernels]
    return _rows(kernels, frame, catalog, sites, "collective_")


def _thinned(frame: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """At most `ROWS_READ` rows of each group, drawn with a fixed seed."""
    drawn = frame.sample(frac=1.0, random_state=0)
    kept = drawn.groupby(list(names), observed=True).head(ROWS_READ)
    return kept.sort_index().reset_index(drop=True)


def _rows(
    kernels: Sequence[KernelShape],
    frame: pd.DataFrame,
    catalog: DeviceCatalog,
    sites: list[str],
    prefix: str,
) -> KernelRows:
    sheets = {system: catalog.get(name) for system, name in DEVICES.items()}
    return KernelRows.of(
        kernels,
        frame["framework"].astype(str).map(ENGINES).tolist(),
        frame["system"].astype(str).map(sheets).tolist(),
        frame["latency_ms"].to_numpy(dtype=np.float64),
        np.array(sites, dtype=np.str_),
        prefix=prefix,
    )


def gemm_kernels(frame: pd.DataFrame) -> list[GemmKernel]:
    """The product of each row.

    Args:
        frame: table of products.
    """
    formats = frame["gemm_dtype"].astype(str).map(FORMATS)
    sizes = (frame[name].tolist() for name in ("m", "n", "k"))
    return [GemmKernel(*own) for own in zip(*sizes, formats, strict=True)]


def gemm_rows(frame: pd.DataFrame, catalog: DeviceCatalog) -> KernelRows:
    """Rows of the table `gemm` as measured kernels.

    Args:
        frame: the table.
        catalog: spec sheets.
    """
    kernels = gemm_kernels(frame)
    sites = [f"{kernel.n} {kernel.k}" for kernel in kernels]
    return _rows(kernels, frame, catalog, sites, "gemm_")


POWER_ROWS: Final = 3000
"""Most rows of one GPU and family; tables have up to 50,000 of each GPU."""


def power_rows(bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
    """Kernels with `power_w`, and the groups `device` and `part` (the family).

    Args:
        bundle: tables of the dataset.
        catalog: spec sheets.
    """
    rows = Measurements([], {"power_w": np.zeros(0)}, {})
    for table in filter(bundle.has, _TYPES):
        rows = rows + _of_table(bundle.table(table), catalog, table)
    return rows


def power_folds(bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
    """Each GPU is held out, with one task for each family.

    The baseline draws the median share of the design power in the training rows of the family.

    Args:
        bundle: tables of the dataset.
        catalog: spec sheets.
    """
    rows = power_rows(bundle, catalog)
    if not len(rows):
        return
    names = rows.groups["device"]
    for device in np.unique(names).tolist():
        train, held_out = rows.take(names != device), rows.take(names == device)
        shares = replace(train, values={"share": train.values["power_w"] / design_w(train)})
        share = median_by(shares, held_out, "share", ("part",))
        baselines = {"constant_share": share * design_w(held_out)}
        name = "power_unseen_device/{part}"
        tasks = tasks_by(held_out, ("device", "part"), name, "power_w", baselines)
        yield Fold("power_unseen_device", train, list(tasks), source="aiconfigurator/power")


def _of_table(frame: pd.DataFrame, catalog: DeviceCatalog, table: str) -> Measurements:
    drawn = frame.sample(frac=1.0, random_state=0)
    types = [name for name in _TYPES[table] if name in frame]
    frame = drawn.groupby(["system", *types], observed=True).head(POWER_ROWS).sort_index()
    sheets = {system: catalog.get(name) for system, name in DEVICES.items()}
    devices = frame["system"].astype(str).map(sheets)
    kernels = _power_kernels(frame, table)
    queries = [
        Query(LlmKernel(kernel, "vllm"), device)
        for kernel, device in zip(kernels, devices, strict=True)
    ]
    parts = [family_of(kernel) for kernel in kernels]
    groups = {"part": parts, "op_class": [part.split("/")[0] for part in parts]}
    return Measurements.of(queries, {"power_w": frame["power_w"]}, groups)


_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "power_gemm": ("gemm_dtype",),
    "power_context_attention": ("attn_dtype", "kv_cache_dtype"),
    "power_generation_attention": ("attn_dtype", "kv_cache_dtype"),
    "power_moe": ("moe_dtype",),
}


def _power_kernels(frame: pd.DataFrame, table: str) -> Sequence[KernelShape]:
    if table == "power_gemm":
        return gemm_kernels(frame)
    if table == "power_moe":
        return experts_kernels(frame)
    return attention_kernels(frame, "decode" if "generation" in table else "prefill")


TRAINING_ROWS: Final = 16_000
"""Most training rows of one device, format and engine; the tables have up to 36,000."""
OTHER_ROWS: Final = 4000
"""Most training rows of one device, format and engine for attention, experts and collectives."""


class AiConfiguratorProtocols(DatasetProtocols):
    """Kernels by engine and number format, on GPUs and at sizes that are held out."""

    dataset = "aiconfigurator"
    reads = MappingProxyType(
        {"gemm": ("system", "framework", "gemm_dtype", "m", "n", "k", "latency_ms")}
    )

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Kernels of all GPUs; at most `TRAINING_ROWS` products of each engine and format."""
        rows = gemm_rows(bundle.table("gemm"), catalog).training_rows(TRAINING_ROWS)
        for other in other_rows(bundle, catalog):
            rows = rows + other.training_rows(OTHER_ROWS)
        return rows

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """Each GPU held out, then a tenth of the sizes (n, k), then a tenth of the rows.

        Attention, experts and collectives follow, each with GPUs and sizes held out, then the power
        of kernels with GPUs held out, where the bundle has their tables.
        """
        rows = gemm_rows(bundle.table("gemm"), catalog)
        yield from rows.unseen_devices(TRAINING_ROWS)
        yield rows.held_out_sites(TRAINING_ROWS)
        yield rows.random_rows(TRAINING_ROWS)
        for other in other_rows(bundle, catalog):
            yield from other.unseen_devices(OTHER_ROWS)
            yield other.held_out_sites(OTHER_ROWS)
        yield from power_folds(bundle, catalog)

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: Seen) -> Tasks:
        """Products on devices that are not in the training set."""
        rows = gemm_rows(bundle.table("gemm"), catalog).measured
        new = rows.take(~is_seen(rows, "device", seen))
        yield from tasks_by(new, ("device", "part"), "gemm_unseen_device/{part}", "latency_ms")

    def left_out(self, bundle: Bundle, catalog: DeviceCatalog, seen: Seen) -> Mapping[str, int]:
        """Products on devices in the training set."""
        return _trained_devices("gemm", bundle.table("gemm")["system"], DEVICES, seen)


def _trained_devices(
    table: str, names: "pd.Series[str]", devices: Mapping[str, str], seen: Seen
) -> Mapping[str, int]:
    same = names.astype(str).map(devices).isin(list(seen.get("device", ())))
    return counted({f"{table}: this device is in the training set": same.to_numpy(dtype=np.bool_)})


class KernelPowerRows(AiConfiguratorProtocols):
    """Kernels whose power was measured: training rows of `KernelPower`."""

    part = "power"

    @property
    def predictor_names(self) -> tuple[str, ...]:
        """The predictor that these rows train."""
        return (KernelPower.name,)

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Kernels of all GPUs with power."""
        return power_rows(bundle, catalog)


def other_rows(bundle: Bundle, catalog: DeviceCatalog) -> Iterator[KernelRows]:
    """Attention, experts and collectives, one table after another, where the bundle has them.

    Args:
        bundle: tables of the dataset.
        catalog: spec sheets.
    """
    for table in filter(bundle.has, ATTENTION_TABLES):
        yield attention_rows(bundle.table(table), catalog, table)
    if bundle.has("moe"):
        yield experts_rows(bundle.table("moe"), catalog)
    if bundle.has("nccl") and bundle.has("custom_allreduce"):
        yield collective_rows(bundle.table("nccl"), bundle.table("custom_allreduce"), catalog)


VIDUR_DEVICES: Final[Mapping[str, str]] = {
    "a100": "a100-sxm-80gb",
    "a40": "a40",
    "h100": "h100-sxm-80gb",
}
"""Device of the table -> name in the catalog."""
ELEMENTWISE: Final[Mapping[str, ElementwiseName]] = {
    "emb": "embedding",
    "input_layernorm": "norm",
    "post_attention_layernorm": "norm",
    "attn_rope": "rotary",
    "mlp_act": "activation",
    "add": "add",
}
"""Operator of the table -> operation, for those that are no matrix products."""
HELD_OUT: Final = "h100-sxm-80gb"
SIZES: Final = ("n_head", "n_kv_head", "n_embd", "n_expanded_embd", "use_gated_mlp", "tp")
OPERATOR_ROWS: Final = 20_000
"""Most training rows of one device and family."""


class VidurProtocols(DatasetProtocols):
    """Products, normalisation, rotary positions, activations, sums and look-ups."""

    dataset = "vidur"
    reads = MappingProxyType({"ops_mlp": ("device", "op", "num_tokens", *SIZES, "median_ms")})

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Operators of all GPUs."""
        return operator_rows(bundle.table("ops_mlp"), catalog).training_rows(OPERATOR_ROWS)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """A100 and A40 to H100, then a tenth of the rows of all GPUs."""
        rows = operator_rows(bundle.table("ops_mlp"), catalog)
        yield from rows.unseen_devices(OPERATOR_ROWS, [HELD_OUT])
        yield rows.random_rows(OPERATOR_ROWS)

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: Seen) -> Tasks:
        """Operators of devices that are not in the training set."""
        rows = operator_rows(bundle.table("ops_mlp"), catalog).measured
        new = rows.take(~is_seen(rows, "device", seen))
        yield from tasks_by(new, ("device",), "unseen_device/operators", "latency_ms")

    def left_out(self, bundle: Bundle, catalog: DeviceCatalog, seen: Seen) -> Mapping[str, int]:
        """Operators of devices in the training set."""
        return _trained_devices("ops_mlp", bundle.table("ops_mlp")["device"], VIDUR_DEVICES, seen)


def operator_rows(frame: pd.DataFrame, catalog: DeviceCatalog) -> KernelRows:
    """Rows of the table `ops_mlp` as measured kernels.

    Equal kernels on one device, in repeated runs or in several models, are one row, their median.

    Args:
        frame: the table.
        catalog: spec sheets.
    """
    sheets = {label: catalog.get(name) for label, name in VIDUR_DEVICES.items()}
    columns = (frame[name].tolist() for name in ("op", "num_tokens", *SIZES))
    every = pd.DataFrame(
        {
            "kernel": [_vidur_kernel(*values) for values in zip(*columns, strict=True)],
            "device": frame["device"].astype(str),
            "median_ms": frame["median_ms"].to_numpy(dtype=np.float64),
        }
    )
    rows = every.groupby(["device", "kernel"], sort=False)["median_ms"].median().reset_index()
    kernels = rows["kernel"].tolist()
    return KernelRows.of(
        kernels,
        ["other"] * len(kernels),
        rows["device"].map(sheets).tolist(),
        rows["median_ms"].to_numpy(dtype=np.float64),
        np.array([_vidur_site(kernel) for kernel in kernels], dtype=np.str_),
    )


def _vidur_site(kernel: GemmKernel | ElementwiseKernel) -> str:
    return f"{kernel.n} {kernel.k}" if isinstance(kernel, GemmKernel) else str(kernel.width)


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
