"""Batches of requests to language models on seven accelerators with five frameworks.

One row of `results` is a batch of requests with `in_out_len` tokens in and as many out: end-to-end
seconds of the batch, and tokens in and out per second.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.columns import Names
from forerun.data.datasets.language_models.operator_splits import few_rows
from forerun.data.datasets.packaged import PackedTables
from forerun.data.lazy import pd
from forerun.data.quality import with_findings
from forerun.data.split import Mask, Split

RESULTS: Final = "results"
SUPPORT_ROWS: Final = 10
ACCELERATORS: Final[Mapping[str, str]] = {"Intel PVC GPU": "Intel Max 1550"}
"""Hardware as written -> its other name: Ponte Vecchio is the chip of the Max 1550."""
FACTOR: Final = 2.0


class LlmInferenceBench(PackedTables, declared="llm_inference_bench"):
    """Leave one accelerator or one model out; ten rows of an accelerator known."""

    def splits(self, bundle: Bundle) -> list[Split]:
        """The declared splits, and `few_rows/results/ACCELERATOR`, with ten rows of it known."""
        if not bundle.has(RESULTS):
            return []
        results = bundle.table(RESULTS)
        few = few_rows(RESULTS, results, accelerators(results), self.query, SUPPORT_ROWS)
        return [*super().splits(bundle), *few]

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`accelerator`, under a single name."""
        return {"accelerator": accelerators(rows)}

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows: repeats, and rows whose throughput is not tokens over latency."""
        conflict = contradictory(bundle.table(RESULTS))
        why = "throughput is not the tokens of the batch over its latency"
        return with_findings(super().flags(bundle), conflict, "conflict", why)


QUERY: Final = LlmInferenceBench.query


def accelerators(results: "pd.DataFrame") -> Names:
    """Accelerator of each of n rows, under a single name."""
    named = results["hardware"].map(lambda name: ACCELERATORS.get(name, name))
    return named.to_numpy(dtype=np.str_)


def contradictory(results: "pd.DataFrame") -> Mask:
    """Whether the throughput of each of n rows differs from tokens over latency by a factor of 2.

    In rows of llama.cpp, the throughput is that of one request, without the batch size.
    """
    tokens = 2.0 * results["in_out_len"] * results["batch_size"]
    ratio = tokens / results["latency_s"] / results["throughput_tok_s"]
    return np.asarray((ratio > FACTOR) | (ratio < 1 / FACTOR), dtype=np.bool_)
