"""MLPerf Inference: throughput, latency and wall power of systems, as their submitters reported.

One row is one result of one system in one round. Power is of the whole system at the wall (CPUs,
fans and losses of the supply included), never of an accelerator. Results are quoted with their
round and submission, as MLPerf's policy asks; derived values are not verified by MLCommons.
Source: mlcommons/cm4mlperf-results at 84d8b84c, Apache-2.0; results (c) MLCommons.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.benchmark_suites.mlperf_accelerators import accelerator_key
from forerun.data.datasets.dataset import Dataset
from forerun.data.quality import Quantities, check
from forerun.data.split import Split, folds_of, leave_folds_out
from forerun.data.upstream.downloads import RawFiles

if TYPE_CHECKING:
    import pandas as pd

CLOSED: Final = "closed_division"
TRAINING: Final = "mlperf_training_v1.0_v3.0"
FIRST_ROUNDS: Final = ("v2.0", "v2.1")
"""Rounds used for training only; every later one is predicted from those before it."""

FOLDS: Final = 5
TOKENS: Final = ("Tokens/s", "tokens/s")
"""Units of language models in newer rounds, which name them; older rows call tokens samples."""
LATENCY: Final = "Latency (ms)"
ENERGY: Final = "millijoules"
POWER_ONLY: Final = ("Watts", ENERGY)

_COLUMNS: Final[Mapping[str, str]] = {
    "round": "version",
    "submitter": "Organization",
    "division": "Division",
    "availability": "Availability",
    "system_type": "SystemType",
    "system": "SystemName",
    "platform": "Platform",
    "accelerator": "accelerator_model_name",
    "accelerators_per_node": "accelerators_per_node",
    "nodes": "number_of_nodes",
    "cpu": "host_processor_model_name",
    "cpus_per_node": "host_processors_per_node",
    "cores_per_cpu": "host_processor_core_count",
    "model": "Model",
    "mlperf_model": "MlperfModel",
    "scenario": "Scenario",
    "result": "Result",
    "result_units": "Result_Units",
    "power_result": "Result_Power",
    "power_units": "Result_Power_Units",
    "inference_per_joule": "Inference_per_Joule",
    "accuracy": "Accuracy",
    "framework": "framework",
    "errors": "errors",
}
"""Column -> upstream's name."""

_TRAINING_COLUMNS: Final[Mapping[str, str]] = {
    "round": "version",
    "submitter": "submitter",
    "division": "division",
    "availability": "availability",
    "system": "system",
    "accelerator": "accelerator_model_name",
    "accelerators": "accelerators_count",
    "cpu": "host_processor_model_name",
    "cpus": "host_processors_count",
    "benchmark": "Benchmark",
    "model": "Model_ID",
    "result": "Result",
    "result_units": "Result_Units",
    "framework": "framework",
}
_MISSING: Final = ("", "N/A", "n/a", "NA", "None", None)
_SAME: Final = (
    "version",
    "Location",
    "Scenario",
    "Model",
    "Result",
    "Result_Power",
    "Result_Units",
)
_RUN: Final = ("version", "Organization", "Platform", "Model", "Scenario")
_NUMBERS: Final = (
    *("accelerators_per_node", "result", "power_result", "inference_per_joule", "accuracy"),
    *("nodes", "cpus_per_node", "errors", "accelerators", "cpus"),
)
_WHOLE: Final = ("nodes", "cpus_per_node", "errors", "accelerators", "cpus")
_SYSTEM: Final = (
    *("submitter", "platform", "accelerator", "accelerators_per_node", "nodes", "model"),
    *("scenario", "system_type", "framework"),
)


class MlperfInference(Dataset, declared="mlperf_inference"):
    """Evaluated on later rounds and on unseen accelerators."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """`closed_division` and the times to train; open and network divisions are left out."""
        tables = {
            CLOSED: _closed(_records(raw, "experiment/mlperf-inference--*")),
            TRAINING: _table(_records(raw, "experiment/mlperf-training--*"), _TRAINING_COLUMNS),
        }
        return {name: frame for name, frame in tables.items() if len(frame)}

    def splits(self, bundle: Bundle) -> list[Split]:
        """`later_rounds/ROUND`, trained on earlier rounds, and `unseen_accelerator/FOLD`.

        Slices and virtual parts of an accelerator are in its fold.
        """
        rows = bundle.table(CLOSED)
        rounds = rows["round"].astype(str).to_numpy(dtype=np.str_)
        order = round_numbers(rounds)
        splits = []
        for name in np.unique(rounds):
            held_out = rounds == name
            if name not in FIRST_ROUNDS:
                train = order < order[held_out][0]
                splits.append(Split(f"later_rounds/{name}", CLOSED, train, held_out, ("round",)))
        device = device_keys(rows)
        keys = {"device": device}

        def split(name: str, train: NDArray[np.bool_], held_out: NDArray[np.bool_]) -> Split:
            return Split(name, CLOSED, train, held_out, ("device",), derived=keys)

        folds = folds_of(device, FOLDS, "unseen_accelerator")
        every = np.ones(len(rows), dtype=np.bool_)
        return [*splits, *leave_folds_out("unseen_accelerator", folds, every, split)]

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows: the same system listed twice with the same result."""
        rows = bundle.table(CLOSED)
        latency = np.where(rows["result_units"] == LATENCY, rows["result"], np.nan)
        quantities = Quantities(time_ms=np.where(np.isnan(latency), 1.0, latency))
        return check(rows, quantities, same=("round", *_SYSTEM, "result"))


def round_numbers(rounds: Iterable[str]) -> NDArray[np.float64]:
    """Rounds as numbers in their order, such as 301 of `v3.1`; NaN for what is no round."""
    found = []
    for name in rounds:
        major, _, minor = str(name).removeprefix("v").partition(".")
        whole = major.isdigit() and minor.isdigit()
        found.append(100.0 * int(major) + int(minor) if whole else np.nan)
    return np.array(found, dtype=np.float64)


def device_keys(rows: "pd.DataFrame") -> NDArray[np.str_]:
    """What each row of `closed_division` ran on: its accelerator, or the CPU where it has none."""
    pairs = zip(rows["accelerator"], rows["cpu"], strict=True)
    return np.array([accelerator_key(accelerator, cpu) for accelerator, cpu in pairs], np.str_)


def _records(raw: RawFiles, pattern: str) -> list[dict[str, Any]]:
    def each() -> Iterator[dict[str, Any]]:
        for path in raw.matching(f"{pattern}.json"):
            yield from json.loads(raw.read(path))

    return list(each())


def _closed(records: list[dict[str, Any]]) -> "pd.DataFrame":
    """Each result once; in the last rounds power is in separate rows, which are joined."""
    import pandas as pd

    names = {*_COLUMNS.values(), *_SAME}
    found = pd.DataFrame([{n: r.get(n) for n in names} for r in records], columns=sorted(names))
    power_only = found["Result_Units"].isin(list(POWER_ONLY)).to_numpy()
    power = found[power_only].drop_duplicates(list(_RUN)).set_index(list(_RUN))["Result_Power"]
    rows = found[~power_only].drop_duplicates(list(_SAME))
    own = rows["Result_Power"].astype("float64").to_numpy()
    joined = power.reindex(pd.MultiIndex.from_frame(rows[list(_RUN)])).astype("float64").to_numpy()
    return _frame(rows.assign(Result_Power=np.where(np.isnan(own), joined, own)), _COLUMNS)


def _table(records: list[dict[str, Any]], columns: Mapping[str, str]) -> "pd.DataFrame":
    import pandas as pd

    names = list(columns.values())
    return _frame(
        pd.DataFrame([{n: r.get(n) for n in names} for r in records], columns=names), columns
    )


def _frame(rows: "pd.DataFrame", columns: Mapping[str, str]) -> "pd.DataFrame":
    """Upstream's columns under this dataset's names, with typed numbers."""
    import pandas as pd

    found = {}
    for name, upstream_name in columns.items():
        known = [None if value in _MISSING else value for value in rows[upstream_name]]
        if name in _NUMBERS:
            column = pd.to_numeric(pd.Series(known)).astype("float64")
            found[name] = column.astype("int64") if name in _WHOLE else column
        else:
            texts = [None if value != value or value is None else str(value) for value in known]
            found[name] = pd.Series(texts, dtype="str")
    return pd.DataFrame(found)
