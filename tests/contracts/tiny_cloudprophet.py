"""Made-up runs of applications on virtual machines, with a known effect of their neighbours."""

import numpy as np
import pandas as pd

from forerun.data.datasets.colocation.cloudprophet_runs import NEIGHBOUR_COLUMNS, RESULTS
from tests.contracts.tiny_published import packaged_files

SLOWED_BY_REDIS = {"web_serving": 0.4, "redis": 0.1}
"""Share by which a run is slower for each neighbour that runs redis all the time."""
ALONE = {"web_serving": 0.5, "redis": 50_000.0}
"""Users' operations a second for each user, and requests a second, with idle neighbours."""


def cloudprophet_table(experiments: tuple[str, ...] = ("exp_a", "exp_b", "exp_c")) -> pd.DataFrame:
    """The table `runs`: two applications, two machines, loads of one bucket; one run failed."""
    draw = np.random.default_rng(0)
    rows = []
    for exp in experiments:
        for place in range(40):
            app = ("web_serving", "redis")[place % 2]
            redis = float(draw.choice([0.0, 0.0, 0.5, 1.0]))
            load = float(1 + place % 4 // 2) if app == "web_serving" else np.nan
            speed = ALONE[app] / (1.0 + SLOWED_BY_REDIS[app] * redis)
            row = dict.fromkeys(NEIGHBOUR_COLUMNS, 0.0) | dict.fromkeys(RESULTS, np.nan)
            row |= {"exp": exp, "vm": 1 + place % 3, "app": app, "load_param": load}
            row |= {"start_unix_s": 1000 * place, "end_unix_s": 1000 * place + 60}
            row |= {"duration_s": 60, "metric": "a rate", "ds_workload": None}
            row |= {"perf_value": speed * (load if app == "web_serving" else 1.0)}
            row |= {"co_redis": redis, "co_media_streaming": 1.0, "co_busy_vms": 1.0 + redis}
            rows.append(row)
        rows[-1]["perf_value"] = np.nan
    return pd.DataFrame(rows)


def cloudprophet_runs() -> dict[str, bytes]:
    """The file of the package."""
    return packaged_files(runs=cloudprophet_table())
