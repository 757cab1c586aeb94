"""Training throughput and GPU memory of NVIDIA's example models on Lambda's systems.

Throughput is images, sequences, tokens, mel frames or samples per second of the whole system,
depending on the model. `batch_size` is the total over all GPUs of the system. Peak memory is the
reading of nvidia-smi, which includes the CUDA context.
Source: lambdal/deeplearning-benchmark at aa5addb6. It states no licence: numbers only.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from forerun.data.columns import Names
from forerun.data.datasets.dataset import Dataset, tables_there
from forerun.data.lazy import pd
from forerun.data.upstream.downloads import RawFiles

THROUGHPUT: Final = "throughput"
MEMORY: Final = "monitor_memory"
PRECISIONS: Final = ("fp16", "fp32")

_RATE = "pytorch/pytorch-train-throughput-{}.csv"
_BATCH = "pytorch/pytorch-train-bs-{}.csv"
_LATER = "pytorch/pytorch-train-throughput-v2-{}.csv"
_TRACES = "pytorch/results/*_monitor.csv"
_TRACE = re.compile(r"results/([^/]+)/PyTorch_([^/]+)/([^/]+)_monitor\.csv$")
_SAMPLE = re.compile(r"\s*(\d+), (\d+) %, (\d+) MiB")
_NODE = re.compile(r"(\d+)x([A-Z]+\d+_\d+GB(?:_SXM\d?)?)(?=_|$)")
_HOST = re.compile(r"^(?:LambdaCloud|Linode|DellTexas|Dell|SMC|1CC|RAIDZ1) ")
_COUNT = re.compile(r"^\d+x ?")
_SUFFIX = re.compile(r"(?:NVlink)?(?: trt\d?)?$")
_COLUMNS = (
    *("table", "system", "num_gpu", "tdp_w_total", "precision", "model", "throughput"),
    *("batch_size", "node"),
)


class LambdaBench(Dataset, declared="lambda_bench"):
    """Leave one GPU model out, with all systems of any number of these GPUs."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """`throughput`, without zeros (workloads that did not run), and `monitor_memory`."""
        rates = [
            read(raw, path, precision)[list(_COLUMNS)]
            for precision in PRECISIONS
            for pattern, read in ((_RATE, _earlier), (_LATER, _later))
            for path in raw.matching(pattern.format(precision))
        ]
        traces = [row for path in raw.matching(_TRACES) if (row := _trace(raw, path))]
        traces.sort(key=lambda row: (row["system"], row["task"], row["run"]))
        return tables_there({THROUGHPUT: rates, MEMORY: traces})

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`gpu`: GPU model of a system, regardless of their number."""
        gpus = [gpu_name(str(name)) for name in rows["system"]]
        return {"gpu": np.array(gpus, dtype=np.str_)}


def gpu_name(system: str) -> str:
    """The GPU of a system's name, without host, number and link, such as `H100 80GB SXM5`."""
    if system.startswith("p3."):
        return "V100"  # AWS EC2 P3
    name = _HOST.sub("", system.replace("_", " "))
    return _SUFFIX.sub("", _COUNT.sub("", name)).strip()


def _earlier(raw: RawFiles, path: str, precision: str) -> "pd.DataFrame":
    """The table of 2022, with batch sizes for systems that the batch size files also name."""
    key, batch_path = ["name_gpu", "num_gpu"], _BATCH.format(precision)
    wide = raw.table(path).astype({"num_gpu": "int64"})
    frame = wide.melt([*key, "watt", "price"], var_name="model", value_name="throughput")
    frame["order"] = np.tile(np.arange(len(wide)), frame["model"].nunique())
    frame["place"] = np.repeat(np.arange(frame["model"].nunique()), len(wide))
    frame["batch_size"] = np.nan
    if batch_path in raw.paths:
        sizes = raw.table(batch_path).astype({"num_gpu": "int64"})
        sizes = sizes.drop_duplicates(key).set_index(key).drop(columns=["watt", "price"])
        known = sizes.stack().to_dict()
        rows = zip(frame["name_gpu"], frame["num_gpu"], frame["model"], strict=True)
        frame["batch_size"] = [float(known.get(row, np.nan)) for row in rows]
    frame = frame[frame["throughput"] > 0].sort_values(["order", "place"], ignore_index=True)
    names = {"name_gpu": "system", "watt": "tdp_w_total"}
    return frame.rename(columns=names).assign(table="v1", precision=precision, node=None)


def _later(raw: RawFiles, path: str, precision: str) -> "pd.DataFrame":
    """The table of 2024; the first column names the node, with the number and type of GPUs."""
    rows: list[dict[str, Any]] = []
    for node, rates in raw.table(path, index_col=0).iterrows():
        named = _NODE.search(str(node))
        if named is None:
            continue
        rows += [
            {
                "system": named[2],
                "num_gpu": int(named[1]),
                "model": str(model),
                "throughput": float(rate),
                "node": str(node),
            }
            for model, rate in rates.items()
            if rate > 0
        ]
    frame = pd.DataFrame(rows)
    return frame.assign(table="v2", precision=precision, tdp_w_total=np.nan, batch_size=np.nan)


def _trace(raw: RawFiles, path: str) -> dict[str, Any] | None:
    """Temperature, utilisation and memory of one run, over all GPUs; None without samples."""
    named = _TRACE.search(path)
    samples = [found for line in raw.text(path).splitlines() if (found := _SAMPLE.match(line))]
    if named is None or not samples:
        return None
    temperature, utilisation, memory = np.array([s.groups() for s in samples], dtype=np.int64).T
    return {
        "system": named[1],
        "task": named[2],
        "run": named[3],
        "samples": len(samples),
        "peak_mem_mib": int(memory.max()),
        "util_p90": float(np.percentile(utilisation, 90)),
        "util_mean": float(utilisation.mean()),
        "temp_max_c": int(temperature.max()),
    }
