"""Training jobs under power limits: power and time per epoch on NVIDIA data-centre GPUs.

Power is the average of one GPU, read through NVML. A job is a data set, a network, an optimizer and
a batch size; each ran one epoch at every limit that its GPU allows.
Source: ml-energy/zeus at 75a8b939, Apache-2.0 (You, Chung and Chowdhury, NSDI 2023).
"""

import re
from typing import Any, Final

from forerun.data.datasets.dataset import Dataset, tables_there
from forerun.data.lazy import pd
from forerun.data.upstream.downloads import RawFiles

TRACE: Final = "power_trace_3gpus"
SWEEP: Final = "power_limit_sweep_v100_a40"
EPOCHS: Final = "train_trace"
JOB: Final = ("dataset", "network", "optimizer", "batch_size")
LIMIT: Final = "power_limit"

_EXAMPLES = "examples/research_reproducibility/zeus_nsdi23/trace"
_POWER = f"{_EXAMPLES}/summary_power_*.csv"
_TRAIN = f"{_EXAMPLES}/summary_train.csv"
_PROFILES = "tests/profile_data/*.csv"
_PROFILE = re.compile(r"([^+/]+)\+([^+/]+)\+gpu([\d,]+)\.csv$")


class ZeusPowerCap(Dataset, declared="zeus_powercap"):
    """Leave one GPU out: no row of the GPU under test is a training row."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """`power_trace_3gpus`, `power_limit_sweep_v100_a40` and `train_trace`."""
        return tables_there(
            {
                TRACE: [_trace(raw, path) for path in raw.matching(_POWER)],
                SWEEP: [row for path in raw.matching(_PROFILES) for row in _windows(raw, path)],
                EPOCHS: [raw.table(path) for path in raw.matching(_TRAIN)],
            }
        )


def _trace(raw: RawFiles, path: str) -> "pd.DataFrame":
    """Rows of one GPU, whose name is part of the file name."""
    gpu = path.rpartition("_")[2].removesuffix(".csv").upper()
    return raw.table(path).assign(gpu=gpu)


def _windows(raw: RawFiles, path: str) -> list[dict[str, Any]]:
    """One row per limit: seconds, and joules of all GPUs together."""
    named = _PROFILE.search(path)
    if named is None:
        return []
    count = len(named[3].split(","))
    rows = []
    for window in raw.table(path).to_dict("records"):
        seconds = float(window["elapsed_time"])
        joules = sum(float(window[f"gpu{place}_energy"]) for place in named[3].split(","))
        rows.append(
            {
                "gpu": named[1],
                "model": named[2],
                "num_gpus": count,
                "power_limit_w": int(str(window["window_name"]).rpartition("_")[2]),
                "elapsed_s": seconds,
                "energy_j": joules,
                "avg_power_w_per_gpu": joules / seconds / count,
            }
        )
    return rows
