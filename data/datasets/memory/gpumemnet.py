"""Peak memory of training on one 40 GB GPU: multilayer perceptrons and timm's vision models.

Values are readings of nvidia-smi, sampled once per second for about a minute of fp32 training: they
include the CUDA context, workspaces and the allocator's slack. Runs that crashed have no status;
they are recognised by their values (`suspect`).
Source: itu-rad/GPUMemNet at f01eb059, arXiv 2602.17817. It states no licence: numbers only.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.dataset import Dataset, tables_there
from forerun.data.lazy import pd
from forerun.data.quality import Quantities, check, with_findings
from forerun.data.split import Mask
from forerun.data.upstream.downloads import RawFiles
from forerun.data.upstream.plain_files import all_sheets

DEVICE: Final = "a100-pcie-40gb"
"""A 40 GB GPU that reports up to 40.5 GiB; the source does not name it."""
CAP_MIB: Final = 38_500.0
LEAST_OWN_MIB: Final = 200.0
"""Least memory of a finished run on top of its activations; the context alone takes more."""
NOISE: Final = 0.995
"""A larger batch below this share of a smaller batch's peak is suspect; runs differ by 0.5 %."""

_MLP = "Datasets/MLP/mlp_data_{}.csv"
_FAKE = "Related_works/FakeTensor/fake_tensor.xlsx"
_HORUS = "Related_works/Horus/horus_formula_not_working.xlsx"
_FOLDS = "Ensemble/k_fold_results/{}_model/{}.json"
_FAKE_COLUMNS = ("faketensor_after_forward_mib", "faketensor_after_backward_mib")


class GpuMemNet(Dataset, declared="gpumemnet"):
    """Random folds of perceptrons, as published, and held-out families of vision models."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """One table per file; the CNN and transformer tables are too large to be included."""
        published = [
            row
            for estimator in ("mlp", "transformer")
            for scored in ("mlp", "cnn", "transformer")
            for path in raw.matching(_FOLDS.format(estimator, scored))
            for row in _kfold(raw.json(path), estimator, scored)
        ]
        return tables_there(
            {
                "mlp_step1": [raw.table(path) for path in raw.matching(_MLP.format("step1"))],
                "mlp_step2": [raw.table(path) for path in raw.matching(_MLP.format("step2"))],
                "timm_training_peak": [_timm(raw, path) for path in raw.matching(_FAKE)],
                "horus_mlp": [_horus(raw, path) for path in raw.matching(_HORUS)],
                "published_kfold": published,
            }
        )

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Runs that are not suspect, and these plus runs out of memory, which give lower bounds."""
        if "suspect" not in rows:
            return {}
        clean = np.asarray(rows["suspect"] == "", dtype=np.bool_)
        bound = np.asarray(rows["suspect"] == "near_40gb_cap", dtype=np.bool_)
        return {"": clean, "bounded": clean | bound}

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Rows of `timm_training_peak` that are `suspect`: impossible, or at the memory limit."""
        if not bundle.has("timm_training_peak"):
            return check(pd.DataFrame(index=[]), Quantities())
        timm = bundle.table("timm_training_peak")
        why = timm["suspect"].astype(str).to_numpy(dtype=np.str_)
        doubtful = np.asarray(why != "", dtype=np.bool_)
        found = check(timm, Quantities())
        return with_findings(found, doubtful, "impossible", why[doubtful].tolist())


def _first_sheet(raw: RawFiles, path: str) -> list[list[Any]]:
    """Rows of the first sheet that has any; sheets of charts have none."""
    return next(rows for rows in all_sheets(raw.read(path), path).values() if rows)


def family(model: str) -> str:
    """Leading letters of a model's name, and those after a lone digit: `res2net50` is `res2net`."""
    letters = re.match(r"[a-z]+(?:\d[a-z]+)?", model)
    return letters[0] if letters else model


def suspects(rows: "pd.DataFrame") -> list[str]:
    """Why each run cannot have finished properly; empty for runs that are not suspect.

    Args:
        rows: columns of `timm_training_peak` except `family` and `suspect`.
    """
    found = [""] * len(rows)
    measured = rows["max_gpu_memory_mib"].to_numpy(dtype=np.float64)
    below = measured < rows[_FAKE_COLUMNS[0]].to_numpy(dtype=np.float64) + LEAST_OWN_MIB
    order = np.lexsort((rows["batch_size"].to_numpy(), rows["model"].to_numpy()))
    models, model, most = rows["model"].to_numpy(), None, 0.0
    for row in order:
        if models[row] != model:
            model, most = models[row], 0.0
        if below[row]:
            found[row] = "below_faketensor"
            continue
        if measured[row] > CAP_MIB:
            found[row] = "near_40gb_cap"
        elif measured[row] == most:
            found[row] = "same_as_smaller_batch"
        elif measured[row] < NOISE * most:
            found[row] = "not_monotone"
        most = max(most, measured[row])
    return found


def _horus(raw: RawFiles, path: str) -> "pd.DataFrame":
    rows = _first_sheet(raw, path)[1:]
    kept = [row for row in rows if row and row[0] is not None and len(row) > 8]
    places = GpuMemNet.facts["horus"]
    return pd.DataFrame({name: [row[place] for row in kept] for name, place in places.items()})


def _timm(raw: RawFiles, path: str) -> "pd.DataFrame":
    """The sheet of FakeTensor estimates, whose headings say GB although the values are MiB."""
    rows = _first_sheet(raw, path)[1:]
    kept = [row for row in rows if len(row) > 5 and isinstance(row[0], str)]
    frame = pd.DataFrame(
        {
            "model": [re.sub(r"_\d+\.out$", "", row[0]) for row in kept],
            "batch_size": [int(row[1]) for row in kept],
            "max_gpu_memory_mib": [int(row[2]) for row in kept],
            **{name: [float(row[3 + i]) for row in kept] for i, name in enumerate(_FAKE_COLUMNS)},
            "faketensor_last_mb": [float(row[5]) for row in kept],
        }
    )
    frame = frame.sort_values(["model", "batch_size"], ignore_index=True)
    frame["family"] = [family(model) for model in frame["model"]]
    frame["suspect"] = suspects(frame)
    return frame


def _kfold(folds: Any, estimator: str, scored: str) -> list[dict[str, Any]]:
    return [
        {
            "estimator": f"{estimator} ensemble",
            "dataset": scored,
            "fold": number_,
            "accuracy": fold["accuracy"],
            "f1": fold["f1"],
            "under_rate": fold["below_diagonal_percentage"],
            "confusion": json.dumps(fold["confusion_matrix"]),
        }
        for number_, fold in enumerate(folds)
    ]
