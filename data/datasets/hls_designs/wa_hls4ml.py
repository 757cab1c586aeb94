"""Dense layers as FPGA designs by hls4ml: shape, precision, reuse and strategy to cycles and area.

One row of `dense_grid_v0` is one dense layer at one setting, without a label if synthesis failed.
This is an early grid of 2,351 rows, not the benchmark of 680,000 models of the same name.
Source: Dendendelen/wa-hls4ml-search at 8e705421, Apache-2.0.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from forerun.data.datasets.dataset import Dataset
from forerun.data.lazy import pd
from forerun.data.split import Mask
from forerun.data.upstream.downloads import RawFiles

TABLE: Final = "dense_grid_v0"
CLOCKS: Final = ("TargetClockPeriod", "EstimatedClockPeriod")
CYCLES: Final = ("BestLatency", "WorstLatency", "IntervalMin", "IntervalMax")
AREA: Final = ("FF", "LUT", "BRAM_18K", "DSP", "URAM")
AVAILABLE: Final = ("BRAM_18K", "DSP", "FF", "LUT", "URAM")

_FILE = "results/results_format_test.csv"


class WaHls4ml(Dataset, declared="wa_hls4ml"):
    """Evaluated on unseen widths, and on unseen settings of widths seen in training."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """`dense_grid_v0`; empty where the file is missing."""
        if _FILE not in raw.paths:
            return {}
        frame = raw.table(_FILE, dtype={"hls_synth_success": str})
        plain = {name: name.removesuffix("_hls") for name in frame.columns}
        frame = frame.rename(columns=plain).rename(
            columns={"prec": "precision_bits", "rf": "reuse_factor"}
        )
        frame["hls_synth_success"] = frame["hls_synth_success"].str.upper() == "TRUE"
        measured = [*CLOCKS, *CYCLES, *AREA, *(f"Available{name}" for name in AVAILABLE)]
        frame = frame.astype(dict.fromkeys(measured, "float64"))
        return {TABLE: frame[[*self.query, "hls_synth_success", *measured]]}

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Rows with a label."""
        return {"": np.asarray(rows["LUT"].notna(), dtype=np.bool_)}


ASKED: Final = WaHls4ml.query
