"""Latency, power and energy of PyTorch modules and of whole torchvision models on two GPUs.

One row of `ops` is one module with one input shape. It was called in a loop on the same input, so
small tensors stay in cache. The A30 was measured with tensor cores on (tf32) and off (fp32).
Source: ConstantinNicolai/ml-operator-profiling at bd3aacea. It states no licence: numbers only.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.columns import Names
from forerun.data.datasets.dataset import Dataset
from forerun.data.lazy import pd
from forerun.data.quality import Quantities, check
from forerun.data.upstream.downloads import RawFiles

TDP_W: Final = {"A30": 165.0, "RTX2080Ti": 250.0}

_ROOT = "functional_general_benchmark"
_STAMP = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d"
_LINE = re.compile(
    rf"(?P<layer>[A-Z]\w*(?:\(.*\))?) (?P<shape>\([\d, ]+\))(?P<before>(?: [-+.\de]+){{11}})"
    rf" (?P<start>{_STAMP}) {_STAMP}(?P<after>(?: [-+.\de]+)+)"
)
_MODEL = re.compile(r"(?P<model>[a-z]\w*) (?P<shape>\([\d, ]+\))")
_TRAINED = ("latency", "latency_std", "energy", "energy_std", "runtime", "power", "power_std")


class TorchOpEnergy(Dataset, declared="torch_op_energy"):
    """Evaluated on unseen operators of seen devices, and on unseen devices."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """`ops` and `full_models`; log lines that are not measurements are skipped."""
        ops = [
            row
            for name in self.facts["operator_files"]
            for row in _operators(_lines(raw, name), name)
        ]
        networks = [
            row for name in self.facts["model_files"] for row in _networks(_lines(raw, name), name)
        ]
        frame = pd.DataFrame(ops)
        texts = ["device", "source_file", "layer", "input_shape", "measured_at", "op"]
        return {
            "ops": frame.astype(dict.fromkeys(texts, "string")),
            "full_models": pd.DataFrame(networks),
        }

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`physical_device`: a device with and without tensor cores is the same one."""
        return {"physical_device": physical_devices(rows["device"])}

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows of `ops`: duplicates, power above the limit, energy not power x time."""
        ops = bundle.table("ops")
        tdp = [TDP_W.get(name, np.nan) for name in physical_devices(ops["device"])]
        power = ops["power_w"].to_numpy(dtype=np.float64)
        return check(
            ops,
            Quantities(
                time_ms=ops["latency_ms"].to_numpy(dtype=np.float64),
                power_w=power,
                tdp_w=np.array(tdp, dtype=np.float64),
                energy_j=ops["energy_mj"].to_numpy(dtype=np.float64) / 1e3,
            ),
            same=("device", "layer", "input_shape", "latency_ms", "power_w"),
        )


def physical_devices(names: "pd.Series[str]") -> NDArray[np.str_]:
    """The hardware behind each name: `A30_tf32` and `A30_fp32` are the same A30."""
    return np.array([str(name).removesuffix("_tf32").removesuffix("_fp32") for name in names])


def _lines(raw: RawFiles, name: str) -> list[str]:
    path = f"{_ROOT}/{name}"
    return raw.text(path).splitlines() if path in raw.paths else []


def _operators(lines: list[str], source: str) -> Iterator[dict[str, Any]]:
    for line in lines:
        found = _LINE.fullmatch(line.strip())
        if found is None:
            continue
        before = [float(value) for value in found["before"].split()]
        after = [float(value) for value in found["after"].split()]
        trained = dict(zip(_TRAINED, after[1:], strict=False))
        yield {
            "device": _device(source),
            "source_file": source,
            "layer": found["layer"],
            "input_shape": found["shape"],
            **_measured(before),
            "iterations": int(before[4]),
            "total_runtime_s": before[5],
            "power_w": before[6],
            "power_std_w": before[7],
            "measured_at": found["start"],
            "latency_std_ms": after[0] * 1e3,
            "train_latency_ms": trained.get("latency", np.nan) * 1e3,
            "train_latency_std_ms": trained.get("latency_std", np.nan) * 1e3,
            "train_energy_mj": trained.get("energy", np.nan),
            "train_energy_std_mj": trained.get("energy_std", np.nan),
            "train_power_w": trained.get("power", np.nan),
            "train_power_std_w": trained.get("power_std", np.nan),
            "op": found["layer"].partition("(")[0],
        }


def _networks(lines: list[str], source: str) -> Iterator[dict[str, Any]]:
    """Rows of networks: an earlier line names the model, the measurement itself only its class."""
    model = ""
    for line in lines:
        named = _MODEL.fullmatch(line.strip())
        if named is not None:
            model = named["model"]
        found = _LINE.fullmatch(line.strip())
        if found is None:
            continue
        before = [float(value) for value in found["before"].split()]
        yield {
            "device": _device(source),
            "phase": "training" if "train" in source else "inference",
            "model": model,
            "input_shape": found["shape"],
            **_measured(before),
            "power_w": before[6],
            "source_file": source,
        }


def _measured(numbers: list[float]) -> dict[str, float]:
    """Columns from seconds per call and mJ per call with its error and standard deviation."""
    names = ("energy_mj", "energy_err_mj", "energy_std_mj")
    return {"latency_ms": numbers[0] * 1e3, **dict(zip(names, numbers[1:4], strict=True))}


def _device(source: str) -> str:
    """`no_tc`: tensor cores off, so fp32; the RTX 2080 Ti has no tf32."""
    if "RTX2080TI" in source:
        return "RTX2080Ti_fp32"
    return "A30_fp32" if "no_tc" in source else "A30_tf32"
