"""llmd_traces: pinball loss of predicted request times, in the order in which a router saw them.

`python -m forerun.training.protocols.language_models.llmd_traces` prints the scores. Every 50
requests, each system is refitted on all earlier requests. Requests are scored by how many were
learned from: none (the first 100), 100 or more, and 1,000 or more.

llm-d's predictor is refitted as in its `training_server.py` with LightGBM, with the features and
settings of commit 147d369a (Apache-2.0); before it has rows, it answers 10 ms. The other baseline
is the quantile of the last 200 times. The settings of `single_requests` were chosen on these two
traces, so these scores are not an independent test. Mean lengths are not those of the traces, but
the defaults for a deployment that names none: 1,024 tokens for prompts and 256 for answers.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.data.bundle import Bundle, find
from forerun.data.columns import Column, Matrix
from forerun.data.datasets.language_models.llmd_traces import REQUESTS
from forerun.data.device import DeviceCatalog
from forerun.data.language_models.deployment import LlmDeployment, Parallelism, Pool, RequestLoad
from forerun.data.lazy import pd
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.llm_serving.single_requests import (
    QUANTILE,
    LearnedTime,
    ServerStates,
    ServerTimes,
    Time,
)

MODEL: Final = "qwen3-32b"
DEVICE: Final = "h200-sxm-141gb"
LOAD: Final = RequestLoad(1024.0, 256.0, concurrency=1.0)
STATE: Final = (
    *("kv_cache_share", "input_tokens", "waiting", "running", "prefix_share"),
    "prefill_tokens_in_flight",
)
"""Columns in the order of `ServerStates`."""
TIMES: Final[Sequence[Time]] = ("ttft_ms", "tpot_ms")
BLOCK: Final = 50
FIRST: Final = 100
LEARNED: Final[Mapping[str, slice]] = {
    "after_0": slice(FIRST),
    "after_100": slice(FIRST, 1000),
    "after_1000": slice(1000, None),
}
"""Part of the requests -> their positions; nothing is learned before the first part."""
UNTRAINED_MS: Final = 10.0
LATEST: Final = 200
LIGHTGBM: Final = {
    **{"n_estimators": 200, "max_depth": 6, "learning_rate": 0.05, "objective": "quantile"},
    **{"alpha": QUANTILE, "subsample": 0.8, "colsample_bytree": 0.8, "min_child_samples": 20},
    **{"reg_alpha": 0.1, "reg_lambda": 0.1, "n_jobs": 1, "random_state": 42, "verbosity": -1},
    "force_col_wise": True,
}


def scores(bundle: Bundle) -> Iterator[dict[str, Any]]:
    """One row for each trace, time and number of requests that were learned from.

    Returns:
        `task`, `n`, and for each system its pinball loss in milliseconds and its coverage
        (percentage of times below the predicted quantile).
    """
    deployment = LlmDeployment(named_language_model(MODEL), LOAD, pool=Pool(Parallelism(1)))
    server = ServerTimes.of(deployment, DeviceCatalog.load().get(DEVICE))
    requests = bundle.table(REQUESTS)
    for trace in sorted(requests["trace"].unique()):
        for time in TIMES:
            selected = requests[(requests["trace"] == trace) & (requests["kind"] == time[:-3])]
            selected = selected.sort_values("row")
            measured = selected["value_ms"].to_numpy(np.float64)
            systems = _systems(server, time, selected, measured)
            answers = {name: _streamed(system, len(selected)) for name, system in systems.items()}
            for part, rows in LEARNED.items():
                row: dict[str, Any] = {"task": f"{part}/{trace}/{time}", "n": len(measured[rows])}
                for name, found in answers.items():
                    row[name] = {
                        "pinball_ms": pinball(measured[rows], found[rows]),
                        "coverage": 100.0 * float((measured[rows] <= found[rows]).mean()),
                    }
                yield row


def pinball(measured: Column, quantile: Column) -> float:
    """Mean pinball loss of n predicted quantiles, in the unit of the values."""
    above = measured - quantile
    return float(np.where(above >= 0.0, QUANTILE * above, (QUANTILE - 1.0) * above).mean())


def _systems(
    server: ServerTimes, time: Time, requests: "pd.DataFrame", measured: Column
) -> dict[str, Callable[[int, slice], Column]]:
    """System -> function of the number of known requests and a slice, for which it predicts."""
    state = requests[[*STATE]].to_numpy(np.float64)
    parts, features = server.parts(time, ServerStates(*state.T)), _features(time, state)

    def forerun(known: int, rows: slice) -> Column:
        learned = LearnedTime.of(time, server.prior(time), parts[:known], measured[:known])
        return learned.quantile_ms(parts[rows])

    def llm_d(known: int, rows: slice) -> Column:
        from lightgbm import LGBMRegressor

        if not known:
            return np.full(len(features[rows]), UNTRAINED_MS)
        model = LGBMRegressor(**LIGHTGBM).fit(features[:known], measured[:known])
        return np.asarray(model.predict(features[rows]))

    def latest(known: int, rows: slice) -> Column:
        last = np.append(measured[:known][-LATEST:], [] if known else [UNTRAINED_MS])
        return np.full(len(features[rows]), np.quantile(last, QUANTILE))

    return {"forerun": forerun, "llm_d": llm_d, "latest_200": latest}


def _features(time: Time, state: Matrix) -> Matrix:
    """The features of llm-d's predictor that vary in the traces, shape (n, features)."""
    share, tokens, waiting, running, prefix, in_flight = state.T
    columns = [waiting > 0.0, share, tokens, waiting, running, in_flight]
    if time == "ttft_ms":
        columns += [prefix, (1.0 - prefix) * tokens, np.minimum(np.floor(4.0 * prefix), 3.0)]
    return np.stack(columns, axis=1).astype(np.float64)


def _streamed(system: Callable[[int, slice], Column], n: int) -> Column:
    """The quantiles of n requests, each block predicted from all earlier requests."""
    starts = range(FIRST, n, BLOCK)
    return np.concatenate(
        [system(0, slice(FIRST)), *(system(s, slice(s, s + BLOCK)) for s in starts)]
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    print(json.dumps([*scores(find("llmd_traces", folder))], indent=1))
