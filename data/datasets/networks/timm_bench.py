"""Throughput of image models on GPUs and CPUs, measured by the timm project.

One row of `bench` is one model at one image size and batch size with one software version.
Source: huggingface/pytorch-image-models at aa4b5850, results/benchmark-*.csv, Apache-2.0.
"""

import re
from collections.abc import Mapping
from typing import Final

import numpy as np

from forerun.data.columns import Names
from forerun.data.datasets.dataset import Dataset, families_of
from forerun.data.lazy import pd
from forerun.data.split import Mask, is_one_of
from forerun.data.upstream.downloads import RawFiles

TRAINING_GPUS: Final = ("rtx3090", "rtx4090")
_FILE = re.compile(
    r"benchmark-(?P<phase>infer|train)-(?P<precision>[a-z0-9_]+)-(?P<layout>nchw|nhwc)"
    r"-pt(?P<torch>\d+)-(?:(?P<cuda>cu\d+)-)?(?P<device>.+?)(?P<compiled>-dynamo)?\.csv"
)
_PHASES = {"infer": "inference", "train": "training"}
_SAME_DEVICE = {"4090": "rtx4090"}
_MEASURES = ("img_size", "batch_size", "samples_per_sec", "step_time", "gmacs", "macts")


class TimmBench(Dataset, declared="timm_bench"):
    """Evaluated on unseen devices, unseen families and unseen models."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """`bench`; the graphs of the models are traced, not downloaded."""
        parts = [_bench_rows(raw, path) for path in raw.matching("results/benchmark-*.csv")]
        return {"bench": pd.concat(parts, ignore_index=True)}

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`family` of models."""
        return {"family": families_of(rows["model"])}

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Rows with a time, those of `TRAINING_GPUS`, and those of other GPUs."""
        measured = np.asarray(rows["step_time_ms"].notna(), dtype=np.bool_)
        cpu = np.asarray(rows["device"].astype(str).str.startswith("cpu"), dtype=np.bool_)
        trained = is_one_of(rows["device"], TRAINING_GPUS)
        others = measured & ~trained & ~cpu
        return {"": measured, "trained": measured & trained, "others": others}


def _bench_rows(raw: RawFiles, path: str) -> "pd.DataFrame":
    """Rows of one file; absent columns are filled with missing values."""
    name = path.rsplit("/", 1)[-1]
    found = _FILE.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} does not name a benchmark")
    table = raw.table(path)
    measures = table.rename(columns={f"{found['phase']}_{m}": m for m in _MEASURES})
    measures = measures.reindex(columns=_MEASURES)
    device = found["device"]
    return pd.DataFrame(
        {
            "model": table["model"].astype("str"),
            "device": _SAME_DEVICE.get(device, device),
            "phase": _PHASES[found["phase"]],
            "precision": found["precision"],
            "layout": found["layout"],
            "torch": _version(found["torch"]),
            "cuda": found["cuda"] or "",
            "compiled": found["compiled"] is not None,
            "img_size": measures["img_size"].astype("int64"),
            "batch_size": measures["batch_size"].astype("float64"),
            "samples_per_sec": measures["samples_per_sec"].astype("float64"),
            "step_time_ms": measures["step_time"].astype("float64"),
            "params_m": table["param_count"].astype("float64"),
            "gmacs": measures["gmacs"].astype("float64"),
            "macts_m": measures["macts"].astype("float64"),
            "source_file": name,
        }
    )


def _version(digits: str) -> str:
    """`113` is 1.13, `291` is 2.9.1, `2101` is 2.10.1."""
    if digits.startswith("1"):
        return f"1.{digits[1:]}"
    return f"{digits[0]}.{digits[1:-1]}.{digits[-1]}"
