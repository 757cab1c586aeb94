"""Application runs on five virtual machines of one server, with their neighbours.

One row of `runs` is one run. Each machine runs one application after another, so neighbours change
during a run. Source: esl-epfl/CloudProphet-Dataset, CC BY-SA 4.0 (CloudProphet, IEEE Transactions
on Sustainable Computing 2024, arXiv 2309.16333). It lacks the paper's hardware metrics.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.packaged import PackagedDataset
from forerun.data.lazy import pd
from forerun.data.quality import Quantities, check
from forerun.data.split import Mask

RUNS: Final = "runs"
APPLICATIONS: Final = ("web_serving", "media_streaming", "inmem_analytics", "data_serving", "redis")
NEIGHBOURS: Final = tuple(f"co_{name}" for name in APPLICATIONS)
"""Columns: fraction of the run's time in which another machine ran the application, summed over
machines."""
NEIGHBOUR_COLUMNS: Final = (*NEIGHBOURS, "co_ws_users", "co_ds_ops", "co_busy_vms")
"""All columns about neighbours; these and the load may be features."""
RESULTS: Final = (
    *("duration_s", "end_unix_s", "perf_value", "ws_metric_ops_s", "ws_post_avg_ms"),
    *("ws_post_max_ms", "ws_post_sd_ms", "ds_runtime_ms", "ds_ops_s", "ds_avg_lat_us"),
    *("ms_req_rate_sum_s", "ms_net_io_kbs", "inmem_exec_ms", "redis_rps_mean"),
)
"""Columns known only after a run; none of them is a feature."""
USERS_PER_BUCKET: Final = 2
BUCKETS_PER_DECADE: Final = 5
"""Loads are compared within buckets: of two numbers of users, or of a fifth of a decade of
operations, which contains two of the twenty loads. A bucket of one machine then has a median of ten
rows over all experiments (at least three), and its operations differ by a tenth of a decade."""


class CloudProphetRuns(PackagedDataset, declared="cloudprophet_runs"):
    """Leave one experiment out, and leave one application out."""

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Runs with a result."""
        return {"": np.asarray(np.isfinite(speeds(rows)), dtype=np.bool_)}

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows of `runs`: those without a result."""
        runs = bundle.table(RUNS)
        time_ms = np.where(np.isfinite(speeds(runs)), 1e3 * runs["duration_s"], np.nan)
        return check(runs, Quantities(time_ms=time_ms))


def speeds(runs: "pd.DataFrame") -> NDArray[np.float64]:
    """Speed of each run, shape (n,): work over time in the application's own unit; NaN if unknown.

    This is operations per second and user for `web_serving`, operations per second for
    `data_serving`, inverse execution time for `inmem_analytics`, and requests per second for
    others.
    """
    value = runs["perf_value"].to_numpy(dtype=np.float64)
    load = runs["load_param"].to_numpy(dtype=np.float64)
    app = runs["app"].astype(str).to_numpy()
    rules = {
        "web_serving": value / load,
        "data_serving": 1e3 * load / value,
        "inmem_analytics": 1e3 / value,
    }
    return np.select([app == name for name in rules], list(rules.values()), value)


def load_buckets(runs: "pd.DataFrame") -> NDArray[np.int64]:
    """Bucket of each run's load, shape (n,); 0 if the application has no load parameter."""
    load = runs["load_param"].to_numpy(dtype=np.float64)
    app = runs["app"].astype(str).to_numpy()
    users = np.floor((load - 1.0) / USERS_PER_BUCKET)
    # Loads are rounded tenths of decades (1,260 stands for 10 ** 3.1), so they are rounded first.
    operations = np.floor(np.round(10.0 * np.log10(load)) * BUCKETS_PER_DECADE / 10.0)
    found = np.select([app == "web_serving", app == "data_serving"], [users, operations], 0.0)
    return np.asarray(np.nan_to_num(found), dtype=np.int64)


def relative_speeds(runs: "pd.DataFrame", reference: Mask) -> NDArray[np.float64]:
    """Speed of each run over the ideal speed, shape (n,); NaN without an ideal speed.

    No application was run alone. The ideal is the 95 % quantile of the speed of the reference rows
    with the same application, machine and load bucket.

    Args:
        runs: n rows.
        reference: n flags; the rows of the training experiments.
    """
    frame = runs[["app", "vm"]].assign(bucket=load_buckets(runs), speed=speeds(runs))
    keys = ["app", "vm", "bucket"]
    ideal = frame[reference].groupby(keys)["speed"].quantile(0.95).rename("ideal").reset_index()
    found = frame.merge(ideal, on=keys, how="left")["ideal"].to_numpy(dtype=np.float64)
    return np.asarray(frame["speed"].to_numpy(dtype=np.float64) / found, dtype=np.float64)
