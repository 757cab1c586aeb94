"""Published throughput and latency of whole networks, from tables in public repositories.

One row of `table` is one line of a published table, with repository, path, commit and line.
`graphs` holds operator graphs of networks whose configuration is public and certain. Only facts
were taken: figures and settings, no prose.
"""

import re
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.columns import Names
from forerun.data.datasets.dataset import families_of, first_reasons
from forerun.data.datasets.packaged import PackagedDataset
from forerun.data.lazy import pd
from forerun.data.quality import Quantities, check
from forerun.data.split import Mask

PRECISIONS: Final = ("fp32", "tf32", "fp16", "bf16", "amp")
ITEMS: Final = ("img/s", "seq/s", "samples/s")
"""Units of throughput that count items of the batch, unlike tokens, frames and audio samples."""

REPEAT: Final = (
    *("framework", "runtime", "model", "sequence_or_image", "gpu", "gpu_count", "phase"),
    *("precision", "micro_batch_per_gpu", "throughput", "latency_avg_ms"),
)
"""Columns that are equal if a measurement is printed twice: READMEs repeat each other's rows."""

SUPERLINEAR: Final = 1.25
"""If eight GPUs have more than this many times eightfold the throughput of one, the rows
contradict.

Chosen from the data: contradicting ratios are above 1.7, all others below 1.1.
"""


_EFFICIENTNET = re.compile(r"EfficientNet-(?:WideSE-)?(B[04])")
_CHIP = re.compile(r"(?:v100|a100)")


class PublishedNetworks(PackagedDataset, declared="published_networks"):
    """Whole networks; leave one architecture family or one GPU out."""

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Rows for which `reasons` gives none."""
        return {"": np.asarray(reasons(rows) == "", dtype=np.bool_)}

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`family`: all variants of an architecture; `chip`: all boards with it."""
        return {"family": families(rows["model"]), "chip": chips(rows["gpu"])}

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows of `table`: those without a time, and repeats of an earlier row."""
        table = bundle.table("table")
        return check(table, Quantities(time_ms=step_ms(table)), same=REPEAT)


RUNTIMES: Final[Mapping[str, str]] = PublishedNetworks.facts["runtimes"]
"""Runtime as written -> its name in `forerun.data.software.Runtime`."""


def reasons(table: "pd.DataFrame") -> NDArray[np.str_]:
    """Why each of n rows takes no part in any protocol; empty if it does.

    Args:
        table: the `table` of the bundle.
    """
    repeated = table.assign(**{"micro_batch_per_gpu": micro_batch(table)}).duplicated(list(REPEAT))
    rules = (
        ("served by Triton", table["kind"] != "framework"),
        ("neither PyTorch nor TensorRT", _other_framework(table)),
        ("generates tokens or images", ~table["phase"].isin(["inference", "training"])),
        ("runtime is not modelled", ~table["runtime"].isin(RUNTIMES)),
        ("precision is not modelled", ~table["precision"].isin(PRECISIONS)),
        ("on a CPU", table["gpu"].str.startswith("cpu")),
        ("number of GPUs unknown or several: communication", table["gpu_count"] != 1),
        ("throughput does not count items", _uncountable(table)),
        ("data loading is inside the timed region", _with_loading(table)),
        ("faster than the printed precision can be", _too_fast(table)),
        ("sequences are shorter than the printed length", _binned(table)),
        ("batch size is not printed", np.isnan(micro_batch(table))),
        ("no time", np.isnan(step_ms(table))),
        ("contradicts the row of eight GPUs", _contradicted(table)),
        ("repeats a row above", repeated),
    )
    return first_reasons(rules, len(table))


def micro_batch(table: "pd.DataFrame") -> NDArray[np.float64]:
    """Samples that one GPU processes at once, without accumulation; NaN if unknown."""
    found = table["micro_batch_per_gpu"].to_numpy(dtype=np.float64, copy=True)
    batches = {tuple(key): size for *key, size in PublishedNetworks.facts["training_batches"]}
    columns = (table[n] for n in ("model", "gpu", "precision", "phase", "framework"))
    for row, (model, gpu, precision, phase, framework) in enumerate(zip(*columns, strict=True)):
        size = _EFFICIENTNET.fullmatch(model)
        if np.isnan(found[row]) and size and phase == "training" and framework == "pytorch":
            key = (size[1].lower(), gpu, precision)
            found[row] = batches.get(key, np.nan)
    return found


def step_ms(table: "pd.DataFrame") -> NDArray[np.float64]:
    """Milliseconds of one forward pass, or of one training step without accumulation.

    Derived from throughput if it is given, because average latencies include warm-up; otherwise the
    average or the median latency.
    """
    throughput = table["throughput"] / table["gpu_count"]
    counted = table["throughput_unit"].isin(ITEMS)
    per_item = 1e3 / throughput.where(counted).to_numpy(dtype=np.float64)
    found = np.asarray(micro_batch(table) * per_item, dtype=np.float64)
    for name in ("latency_avg_ms", "latency_p50_ms"):
        found = np.where(np.isnan(found), table[name].to_numpy(dtype=np.float64), found)
    return found


def families(models: "pd.Series[str]") -> NDArray[np.str_]:
    """Architecture family of each of n published models, including all sizes and variants."""
    return families_of(models, PublishedNetworks.facts["families"])


def chips(gpus: "pd.Series[str]") -> NDArray[np.str_]:
    """Chip of each of n GPUs, regardless of memory size and form factor."""
    found = ((_CHIP.match(str(gpu)), str(gpu)) for gpu in gpus)
    return np.array([match[0] if match else gpu for match, gpu in found], dtype=np.str_)


def _other_framework(table: "pd.DataFrame") -> Mask:
    is_pytorch = table["framework"].str.startswith("pytorch")
    return np.asarray(~is_pytorch & ~table["runtime"].str.startswith("tensorrt"), dtype=np.bool_)


def _uncountable(table: "pd.DataFrame") -> Mask:
    unit = table["throughput_unit"]
    return np.asarray(unit.notna() & ~unit.isin(ITEMS), dtype=np.bool_)


def _with_loading(table: "pd.DataFrame") -> Mask:
    """Flag SSD rows, because `benchmark_inference_loop` starts its clock before loading images."""
    ssd = table["model"].str.startswith("SSD300") & (table["framework"] == "pytorch")
    return np.asarray(ssd & (table["phase"] == "inference"), dtype=np.bool_)


def _too_fast(table: "pd.DataFrame") -> Mask:
    """Flag rows whose precision is uncertain.

    The A100 tables of fused attention say float32, but their rows are up to 8 times faster than
    the roofline of float32 (150 TFLOP/s).
    """
    hub = table["framework"] == "pytorch (transformers)"
    suspicious = hub & (table["gpu"] == "a100-sxm-40gb") & (table["precision"] == "fp32")
    return np.asarray(suspicious, dtype=np.bool_)


def _binned(table: "pd.DataFrame") -> Mask:
    """Flag pre-training of BERT with sequences of 512, which is up to 1.5 times above the roofline.

    The loader of that release (LDDL) sorts sequences into bins by length, so most are shorter.
    """
    bert = (table["framework"] == "pytorch") & (table["model"] == "BERT-large")
    return np.asarray(bert & (table["sequence_or_image"] == "512"), dtype=np.bool_)


def _contradicted(table: "pd.DataFrame") -> Mask:
    """Flag training rows of one GPU if the row of eight GPUs is far above eight times as fast."""
    keys = ["framework", "runtime", "model", "variant", "gpu", "phase", "precision"]
    keys += ["sequence_or_image", "micro_batch_per_gpu"]
    table = table.assign(micro_batch_per_gpu=micro_batch(table))
    training = table[table["phase"] == "training"]
    eight = training[training["gpu_count"] == 8].groupby(keys, dropna=False)["throughput"].max()
    expected = eight.rename("of_eight").reset_index()
    of_eight = table[keys].merge(expected, on=keys, how="left")["of_eight"].to_numpy()
    limit = 8 * SUPERLINEAR * table["throughput"].to_numpy(dtype=np.float64)
    alone = ((table["gpu_count"] == 1) & (table["phase"] == "training")).to_numpy()
    return np.asarray(alone & (of_eight > limit), dtype=np.bool_)
