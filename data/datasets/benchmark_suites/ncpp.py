"""Benchmark scores of Intel Sapphire Rapids machines: the public sample of PerfCastDB.

All training rows of a suite come from one CPU part and the test rows come from other parts, so no
effect of hardware can be learned. The dataset only serves as an ingestion example and sanity check.
Source: xiaoman-liu/NCPP at dd5ca2b2, Apache-2.0.
"""

import io
from collections.abc import Mapping
from typing import Final

import numpy as np

from forerun.data.columns import Mask
from forerun.data.datasets.dataset import Dataset
from forerun.data.lazy import pd
from forerun.data.upstream.downloads import RawFiles

PART: Final = "META.metadata.cscope.qdf0"
SCORE: Final = "RESULT.Value"
SUITE: Final = "RESULT.WorkloadName"
TEST: Final = (SUITE, "RESULT.WorkloadPreset", "RESULT.TestName")
PARTS: Final = ("train", "test")

_POD, _ITERATION = "kubernetes.pod_id", "RESULT.IterationIndex"
_FILES = {part: f"data/raw/SPR/{part}_data.csv" for part in PARTS}


class Ncpp(Dataset, declared="ncpp"):
    """Evaluated on unseen machines; in both tables one row is one run."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """`train` and `test`, without columns that identify machines or times of the cluster."""
        return {
            part: _runs(raw.read(path), part) for part, path in _FILES.items() if path in raw.paths
        }

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """No rows: the table `test` is never trained on."""
        return {"none": np.zeros(len(rows), dtype=np.bool_)}


def _runs(content: bytes, part: str) -> "pd.DataFrame":
    """Rows of one file; sessions on a machine are numbered in order of appearance."""
    frame = pd.read_csv(io.BytesIO(content))
    sessions, _ = pd.factorize(frame[_POD])
    numbers = frame[_ITERATION].astype("int64")
    rows = frame.drop(columns=[name for name in Ncpp.facts["dropped"] if name in frame])
    return rows.assign(run_id=[f"{part[:2]}{n}" for n in sessions], iteration=numbers)
