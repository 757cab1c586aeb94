"""MLPerf Inference: throughput, latency and wall power of systems, as reported by submitters.

One row is one result of one system in one round. Power is that of the whole system at the wall
(including CPUs, fans and power supply losses), never of an accelerator. Results are quoted with
their round and submission, as MLPerf's policy asks; derived values are not verified by MLCommons.
Source: mlcommons/cm4mlperf-results at 84d8b84c, Apache-2.0; results (c) MLCommons.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.columns import Names
from forerun.data.datasets.dataset import Dataset
from forerun.data.device import Device, DeviceCatalog
from forerun.data.lazy import pd
from forerun.data.quality import Quantities, check
from forerun.data.split import Split
from forerun.data.upstream.downloads import RawFiles

_SLICE: Final = re.compile(r"\((\d+)x(\d)g\.\d+gb mig\)")
_SLICES: Final = {"a30": 4.0}
"""Number of compute slices of a part that can be partitioned; 7 for parts not listed."""

_NOISE: Final = re.compile(
    r"\([^)]*\)|virtualized|\bcts\b|nps1-spx|-750w|-02$|,.*$|\btensor core\b|[®™©]|\bgpu$"
)


def runs_on_cpu(accelerator: Any) -> bool:
    """Whether a row's accelerator column says that there is none."""
    return not isinstance(accelerator, str) or accelerator.strip() in ("", "-", "N/A")


def accelerator_key(accelerator: Any, cpu: Any) -> str:
    """Slug of the hardware of a row: its accelerator, or its CPU where it has none.

    >>> accelerator_key("NVIDIA A100-SXM-80GB (1x1g.10gb MIG)", "AMD EPYC 7742")
    'a100-sxm-80gb'
    """
    text = _plain(cpu if runs_on_cpu(accelerator) else accelerator)
    if not runs_on_cpu(accelerator):
        for pattern, name in MlperfInference.facts["parts"]:
            if re.search(pattern, text):
                return str(name)
    slug = re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:80].strip("-")
    return slug or "unknown"


def share_in_use(accelerator: Any) -> float:
    """Share of a part that a slice makes up; 1 for a whole part.

    >>> round(share_in_use("NVIDIA A30 (1x1g.6gb MIG)"), 2)
    0.25
    """
    found = _SLICE.search(str(accelerator).lower())
    if not found:
        return 1.0
    whole = _SLICES.get(accelerator_key(accelerator, ""), 7.0)
    return min(1.0, int(found[1]) * int(found[2]) / whole)


def accelerator(key: str, on_cpu: bool, catalog: DeviceCatalog) -> Device:
    """The spec sheet for a slug of `accelerator_key`, or else a device without figures."""
    unknown = Device(name=key, vendor="unknown", kind="cpu" if on_cpu else "npu")
    return catalog.find(key) or unknown


def _plain(text: Any) -> str:
    lower = re.sub(r"\((r|tm)\)", " ", str(text).lower())
    lower = re.sub(r"\s*(cpu\s*)?@.*$", "", lower)
    lower = re.sub(r"\b\d+-core processor\b", "", lower)
    return re.sub(r"\s+", " ", _NOISE.sub(" ", lower)).strip()


CLOSED: Final = "closed_division"
TRAINING: Final = "mlperf_training_v1.0_v3.0"
FIRST_ROUNDS: Final = ("v2.0", "v2.1")
"""Rounds used for training only; every later one is predicted from those before it."""

TOKENS: Final = ("Tokens/s", "tokens/s")
"""Units of language models in newer rounds; older rows call tokens samples."""
LATENCY: Final = "Latency (ms)"
ENERGY: Final = "millijoules"
POWER_ONLY: Final = ("Watts", ENERGY)


_MISSING: Final = ("", "N/A", "n/a", "NA", "None", None)
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
            CLOSED: _closed(
                _records(raw, "experiment/mlperf-inference--*", CLOSED, self.facts["same"])
            ),
            TRAINING: _frame(_records(raw, "experiment/mlperf-training--*", TRAINING), TRAINING),
        }
        return {name: frame for name, frame in tables.items() if len(frame)}

    def splits(self, bundle: Bundle) -> list[Split]:
        """`later_rounds/ROUND`, trained on earlier rounds, and `unseen_accelerator/FOLD`.

        Slices and virtual parts of an accelerator are in the same fold.
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
        return [*splits, *super().splits(bundle)]

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`device`: the accelerator of each row."""
        return {"device": device_keys(rows)}

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows: the same system listed twice with the same result."""
        rows = bundle.table(CLOSED)
        latency = np.where(rows["result_units"] == LATENCY, rows["result"], np.nan)
        quantities = Quantities(time_ms=np.where(np.isnan(latency), 1.0, latency))
        return check(rows, quantities, same=("round", *_SYSTEM, "result"))


def round_numbers(rounds: Iterable[str]) -> NDArray[np.float64]:
    """Rounds as increasing numbers, such as 301 for `v3.1`; NaN for anything else."""
    found = []
    for name in rounds:
        major, _, minor = str(name).removeprefix("v").partition(".")
        whole = major.isdigit() and minor.isdigit()
        found.append(100.0 * int(major) + int(minor) if whole else np.nan)
    return np.array(found, dtype=np.float64)


def device_keys(rows: "pd.DataFrame") -> NDArray[np.str_]:
    """What each row of `closed_division` ran on: its accelerator, or its CPU if it has none."""
    pairs = zip(rows["accelerator"], rows["cpu"], strict=True)
    return np.array([accelerator_key(accelerator, cpu) for accelerator, cpu in pairs], np.str_)


def _records(
    raw: RawFiles, pattern: str, table: str, further: Iterable[str] = ()
) -> "pd.DataFrame":
    """Records of the files, with the fields for the columns of a table and further ones."""
    records = [row for path in raw.matching(f"{pattern}.json") for row in raw.json(path)]
    names = sorted({*MlperfInference.facts["columns"][table].values(), *further})
    return pd.DataFrame([{n: row.get(n) for n in names} for row in records], columns=names)


def _closed(found: "pd.DataFrame") -> "pd.DataFrame":
    """Each result once; in the last rounds power is in separate rows, which are joined."""
    power_only = found["Result_Units"].isin(list(POWER_ONLY)).to_numpy()
    power = found[power_only].drop_duplicates(list(_RUN)).set_index(list(_RUN))["Result_Power"]
    rows = found[~power_only].drop_duplicates(MlperfInference.facts["same"])
    printed = rows["Result_Power"].astype("float64").to_numpy()
    joined = power.reindex(pd.MultiIndex.from_frame(rows[list(_RUN)])).astype("float64").to_numpy()
    return _frame(rows.assign(Result_Power=np.where(np.isnan(printed), joined, printed)), CLOSED)


def _frame(rows: "pd.DataFrame", table: str) -> "pd.DataFrame":
    """Upstream's columns under the names of a table, with typed numbers."""
    found = {}
    for name, upstream_name in MlperfInference.facts["columns"][table].items():
        known = [None if value in _MISSING else value for value in rows[upstream_name]]
        if name in _NUMBERS:
            column = pd.to_numeric(pd.Series(known)).astype("float64")
            found[name] = column.astype("int64") if name in _WHOLE else column
        else:
            texts = [None if value != value or value is None else str(value) for value in known]
            found[name] = pd.Series(texts, dtype="str")
    return pd.DataFrame(found)
