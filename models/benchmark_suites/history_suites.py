"""What histories of benchmark results know of their suites, and usual values of settings."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from forerun.data.columns import Mask
from forerun.data.query import Query
from forerun.models.benchmark_suites.history_coverage import HistoryCoverage
from forerun.models.benchmark_suites.history_features import USUAL_GFLOP, history_rows
from forerun.models.benchmark_suites.known_suites import KnownSetting, KnownSuite
from forerun.models.gaussian_process.additive_categorical import KeyedRows

CHOICES: Final = ("framework", "reference", "power_mode", "server", "system_type")
"""Settings with a few values, which most rows of a device share."""
FREE: Final[Mapping[str, str]] = {
    "part": "the accelerator, or the CPU of a system without one, in the submitter's words",
    "submitter": "who submitted the result",
    "platform": "the system, in the submitter's words",
}
NUMBERS: Final[Mapping[str, str]] = {
    "gflop": "arithmetic of one sample, 1e9 operations",
    "host_cores": "CPU cores of a node",
    "nodes": "number of nodes",
    "power_measured": "1 for a run with a power measurement, else 0",
    "share": "share of the accelerator that is used, such as 0.14 for one of seven slices",
}


def history_suites(
    seen: HistoryCoverage, rows: KeyedRows, metrics: Sequence[str]
) -> tuple[KnownSuite, ...]:
    """The suites of a history with their settings.

    Args:
        seen: what the training set covers.
        rows: the training rows of throughput.
        metrics: metrics that the predictor answers.
    """
    devices = dict(zip(rows.keys["device"].tolist(), rows.keys["kind"].tolist(), strict=True))
    # A device with a spec sheet is known by its figures, in brackets, and has its own name.
    nameless = {name: kind for name, kind in devices.items() if name and not name.startswith("(")}
    settings = [
        KnownSetting("model", _values(rows, "model"), required=True),
        KnownSetting("scenario", tuple(sorted(seen.values["scenario"])), required=True),
    ]
    settings += [KnownSetting(name, _values(rows, name)) for name in CHOICES if _values(rows, name)]
    settings += [KnownSetting(n, meaning=words) for n, words in FREE.items() if _values(rows, n)]
    low, high = (_round_number(year) for year in seen.years)
    settings.append(KnownSetting("round", (), low, high, meaning="401 for v4.1"))
    settings += [KnownSetting(name, meaning=words) for name, words in NUMBERS.items()]
    kinds = tuple(sorted(set(devices.values())))
    return tuple(
        KnownSuite(suite, tuple(settings), tuple(metrics), kinds, nameless) for suite in seen.suites
    )


def usual_history_settings(query: Query, rows: KeyedRows) -> dict[str, float | str]:
    """Settings that most training rows like the query have.

    Rows of the query's device count, else all rows. The arithmetic of a sample is that of the
    model, and the round is the last one.
    """
    own = history_rows([query])
    every = np.ones(len(rows), dtype=np.bool_)
    of_device = rows.keys["device"] == own.keys["device"][0]
    of_model = rows.keys["base"] == own.keys["base"][0]
    found: dict[str, float | str] = {"round": _round_number(float(rows.numbers["time"].max()))}
    for name in (*CHOICES, "submitter"):
        near = (of_device & of_model, of_device, every)
        usual = next((v for mask in near if (v := _commonest(rows, name, mask))), "")
        alone = name != "submitter" or len(_values(rows, name)) == 1
        if usual and alone:
            found[name] = usual
    part = _commonest(rows, "part", of_device)
    if part:
        found["part"] = part
    if of_model.any() and np.ptp(rows.numbers["work"]) > 0.0:
        work = float(np.median(rows.numbers["work"][of_model]))
        found["gflop"] = float(f"{USUAL_GFLOP * np.exp(work):.4g}")
    return found


def _values(rows: KeyedRows, key: str) -> tuple[str, ...]:
    return tuple(sorted(set(rows.keys[key].tolist()) - {""}))


def _commonest(rows: KeyedRows, key: str, mask: Mask) -> str:
    """The value that most of these rows have, the first in order of equals; empty for none."""
    counts = Counter(name for name in sorted(rows.keys[key][mask].tolist()) if name)
    return counts.most_common(1)[0][0] if counts else ""


def _round_number(years: float) -> float:
    """The number of a round, from its years since v2.0; the inverse of `round_years`."""
    major, half = divmod(years + 2.0, 1.0)
    return 100.0 * major + 2.0 * half
