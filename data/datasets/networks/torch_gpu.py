"""Operators and networks timed through PyTorch on GPUs, measured by this project.

One row of `runs` is one operator, or one of the networks of `forerun.data.collectors`, in one
precision on one GPU. A network was launched operator by operator (eager), or recorded as one CUDA
graph, so that its latency is the time of the GPU alone. `graphs` has the operators of each network.
Recorded networks and the power of eager ones train released predictors; the other rows do not.
"""

import json
from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np

from forerun.data.datasets.dataset import family_of
from forerun.data.datasets.packaged import MeasuredDataset
from forerun.data.lazy import pd
from forerun.data.split import Mask

EXECUTION_MODES: Final = ("operators", "eager", "recorded")
"""Single operators; networks launched operator by operator; networks as one CUDA graph."""

_MEMORY = ("allocated_memory_mib", "reserved_memory_mib", "peak_memory_mib")
_TIMES = ("latency_ms", "fastest_ms", "kernel_ms")
_POWER = ("power_w", "energy_j", "power_window_s", "power_limit_w", "sm_clock_mhz")
NUMBERS: Final = (*("batch_size", *_TIMES, "spread", *_MEMORY, *_POWER, "power_capped_share"),)
"""Columns of numbers; null where a figure was not measured or does not apply."""


class TorchGpu(MeasuredDataset, declared="torch_gpu"):
    """Networks and operators on data-centre GPUs; evaluated zero-shot, or with one GPU held out."""

    columns: ClassVar[tuple[str, ...]] = (
        *("device", "workload", "label", "kind", "precision", "batch_size", "phase", "runtime"),
        *("cuda_graph", "fp32_convolutions", "latency_ms", "fastest_ms", "spread", "kernel_ms"),
        *("allocated_memory_mib", "reserved_memory_mib", "peak_memory_mib"),
        *("power_w", "energy_j", "power_window_s", "power_limit_w"),
        *("sm_clock_mhz", "power_capped_share", "status", "framework_version", "cuda", "driver"),
    )

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Measured rows, measured rows of each execution mode, and no rows."""
        measured = (rows["status"] == "ok").to_numpy(dtype=np.bool_)
        modes = execution_modes(rows)
        of_modes = {mode: measured & (modes == mode) for mode in EXECUTION_MODES}
        return {"": measured, "none": np.zeros(len(rows), dtype=np.bool_), **of_modes}


def execution_modes(runs: "pd.DataFrame") -> "np.ndarray[tuple[int], np.dtype[np.str_]]":
    """The execution mode of each of n rows of `runs`, one of `EXECUTION_MODES`."""
    networks = np.where(runs["cuda_graph"].to_numpy(dtype=np.bool_), "recorded", "eager")
    return np.where(runs["kind"] == "kernel", "operators", networks).astype(np.str_)


def families(runs: "pd.DataFrame") -> "np.ndarray[tuple[int], np.dtype[np.str_]]":
    """Architecture family of each of n networks, by leading letters; kinds of operators."""
    return np.array(
        [
            str(json.loads(workload)["kind"]) if kind == "kernel" else family_of(label, ())
            for kind, workload, label in zip(
                runs["kind"], runs["workload"], runs["label"], strict=True
            )
        ],
        dtype=np.str_,
    )
