"""Operators and networks timed through onnxruntime on processors, measured by this project.

One row of `runs` is one operator, or one of the networks of `forerun.data.collectors`, at a number
of threads. Published networks are excluded: they are reserved for evaluation.
"""

from collections.abc import Mapping
from typing import ClassVar

from forerun.data.datasets.packaged import MeasuredDataset
from forerun.data.lazy import pd
from forerun.data.split import Mask


class OnnxruntimeCpu(MeasuredDataset, declared="onnxruntime_cpu"):
    """Networks held out in five folds, and unseen numbers of threads."""

    columns: ClassVar[tuple[str, ...]] = (
        *("device", "workload", "label", "kind", "framework_version", "instruction_set"),
        *("threads", "batch_size", "latency_ms", "fastest_ms", "peak_memory_mib", "spread"),
        "others_share",
    )

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Networks, operators, rows with one thread, and networks with several threads."""
        networks = (rows["kind"] == "network").to_numpy()
        alone = (rows["threads"] == 1).to_numpy()
        several = {"alone": alone, "networks on several": ~alone & networks}
        return {"networks": networks, "operators": ~networks, **several}
