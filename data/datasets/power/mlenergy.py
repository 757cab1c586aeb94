"""Power, energy, latency and throughput of generative models for text, images and videos.

One row is one run of one model on one to eight GPUs. `avg_power_watts` is the sum over all GPUs in
steady state, without hosts. It equals energy per token (image, video) times throughput, so two of
the three give the third. An operator sets the maximum number of sequences; `avg_batch_size` is the
measured one. `mlenergy_v1_chat_v100_a40_a100` holds answers to one user at a time, from 2023.
Source: ml-energy/leaderboard at 0cd52dab and c814c36c. It states no licence: numbers only.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.dataset import Dataset, tables_there
from forerun.data.lazy import pd
from forerun.data.quality import Quantities, check
from forerun.data.upstream.downloads import RawFiles

RUNS: Final = "mlenergy_v3_runs"
CHATS: Final = "mlenergy_v1_chat_v100_a40_a100"
TDP_W: Final = {"H100": 700.0, "B200": 1000.0}

_MODEL = (
    *("activated_params_billions", "model_id", "task"),
    *("total_params_billions", "weight_precision"),
)
_CHAT_FILE = "data/legacy/{}_chat_benchmark.csv"
_CHAT_GPUS = ("V100", "A40", "A100")


class MlEnergy(Dataset, declared="mlenergy"):
    """Leave one model out, and leave one device out."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """Runs in the order of the files, and chats."""
        files = raw.matching("*public/data/models/*.json")
        runs = [row for path in files for row in _runs(raw.json(path))]
        tables = tables_there(
            {RUNS: runs, CHATS: [row for gpu in _CHAT_GPUS for row in _chats(raw, gpu)]}
        )
        if runs:
            types = dict.fromkeys(COLUMNS, "float64") | dict.fromkeys(self.facts["texts"], "str")
            frame = tables[RUNS].reindex(columns=COLUMNS)
            tables[RUNS] = frame.astype(types).astype({"num_gpus": "int64"})
        return tables

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows: duplicates, power above the limit, energy unlike power times time."""
        if not bundle.has(RUNS):
            return check(pd.DataFrame(index=[]), Quantities())
        runs = bundle.table(RUNS)
        watts = runs["avg_power_watts"] / runs["num_gpus"]
        tdp = [TDP_W.get(name, np.nan) for name in runs["gpu_model"]]
        rate = runs["throughput_images_per_sec"].fillna(runs["throughput_videos_per_sec"])
        rate = rate.fillna(runs["output_throughput_tokens_per_sec"])
        joules = runs["energy_per_image_joules"].fillna(runs["energy_per_video_joules"])
        joules = joules.fillna(runs["energy_per_token_joules"])
        return check(
            runs,
            Quantities(
                time_ms=(1e3 / rate).to_numpy(dtype=np.float64),
                power_w=watts.to_numpy(dtype=np.float64),
                tdp_w=np.array(tdp, dtype=np.float64),
                energy_j=(joules / runs["num_gpus"]).to_numpy(dtype=np.float64),
            ),
            same=(*self.query, "avg_power_watts"),
        )


COLUMNS: Final = tuple(MlEnergy.facts["columns"])
"""Columns of the runs, in order."""


def _runs(model: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of one model and task; parallel degrees are in a nested mapping."""
    about = {name: model.get(name) for name in (*_MODEL, "architecture")}
    for run in model["configurations"]:
        yield {**about, **run, **run.get("parallelization", {})}


def _chats(raw: RawFiles, gpu: str) -> Iterator[dict[str, Any]]:
    for path in raw.matching("*" + _CHAT_FILE.format(gpu)):
        for row in csv.DictReader(io.StringIO(raw.text(path))):
            measured = {
                name: round(float(row[old]), 4) for old, name in MlEnergy.facts["chat"].items()
            }
            yield {"model": row["model"], **measured, "gpu": gpu}
