"""Whole networks on the processors of phones, boards, laptops and servers, by ncnn's benchmark."""

from collections.abc import Mapping

import numpy as np

from forerun.data.datasets.packaged import PackagedDataset
from forerun.data.lazy import pd
from forerun.data.split import Mask

SMALL_CORES = 1
"""Value of `powersave` for runs on the small cores alone."""
RUN = ("device", "network", "threads")


class EdgeNetworks(PackagedDataset, declared="edge_networks"):
    """Leave one processor out."""

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """`scaling`: the fastest run of networks at each number of threads, on equal cores."""
        equal = rows["device"].str.startswith(tuple(self.facts["of_one_kind"].values()))
        kept = equal & (rows["target"] == "cpu") & ~rows["int8"]
        kept &= rows["network"].isin(self.facts["networks"]) & (rows["powersave"] != SMALL_CORES)
        fastest = rows[kept].groupby(list(RUN))["min_ms"].idxmin()
        return {"scaling": np.asarray(rows.index.isin(fastest), dtype=np.bool_)}
