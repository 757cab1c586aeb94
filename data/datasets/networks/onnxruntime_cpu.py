"""Operators and networks timed through onnxruntime on processors, measured by this project.

One row of `runs` is one operator, or one of the networks of `forerun.data.collectors`, at a number
of threads. Published networks are not among them: those are kept for evaluation.
"""

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.packaged import MeasuredDataset
from forerun.data.split import Mask, Split, folds_of, leave_folds_out

if TYPE_CHECKING:
    pass

FOLDS = 5


class OnnxruntimeCpu(MeasuredDataset, declared="onnxruntime_cpu"):
    """Networks held out in five folds, and unseen numbers of threads."""

    columns: ClassVar[tuple[str, ...]] = (
        *("device", "workload", "label", "kind", "framework_version", "instruction_set"),
        *("threads", "batch_size", "latency_ms", "fastest_ms", "peak_memory_mib", "spread"),
        "others_share",
    )

    def splits(self, bundle: Bundle) -> list[Split]:
        """`unseen_networks/FOLD`: networks held out; `unseen_threads`: trained on one thread.

        Operators measured alone are training rows in every fold.
        """
        if not bundle.has("runs"):
            return []
        runs = bundle.table("runs")
        networks = (runs["kind"] == "network").to_numpy()
        everything = np.ones(len(runs), dtype=np.bool_)

        def make(protocol: str, train: Mask, held_out: Mask) -> Split:
            return Split(protocol, "runs", train | ~networks, held_out & networks, ("label",))

        folds = folds_of(runs["label"], FOLDS)
        splits = leave_folds_out("unseen_networks", folds, networks & everything, make)
        alone = (runs["threads"] == 1).to_numpy()
        splits.append(Split("unseen_threads", "runs", alone, ~alone & networks, ("threads",)))
        return [split for split in splits if split.held_out.any()]
