"""Diffusion with U-Nets, described by the tokens that have as many products: published times.

The times of open-muse (RTX 4090 and A100) train nothing; their memory calibrates `memory`.
"""

import re
from dataclasses import replace

import numpy as np
import pytest

from forerun.data.datasets.memory.published_memory import PublishedMemory
from forerun.data.device import DeviceCatalog
from forerun.data.query import Query
from forerun.data.workload import Diffusion
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.serving.power import ServingPower

DEVICES = {"a100": "a100-sxm-80gb", "4090": "rtx-4090"}
U_NETS = {
    "sdxl": (2.567e9, 30),
    "ssd_1b": (1.331e9, 27),
    "stable_diffusion_1_5": (0.8595e9, 26),
}
"""Model -> weights of its U-Net, pixels of a token that gives as many products."""


def asked_and_measured():
    """Queries about the rows, with and without their tokens, and the measured milliseconds."""
    catalog, source = DeviceCatalog.load(), PublishedMemory()
    table = source.tidy(source.packaged())["table"]
    rows = table[table["source_repo"].str.endswith("open-muse") & table["model"].isin(U_NETS)]
    described, usual = [], []
    for row in rows.to_dict("records"):
        weights, pixels = U_NETS[row["model"]]
        side, steps = int(row["seq_or_resolution"]), re.search(r"steps (\d+)", row["config"])
        picture = Diffusion(
            weights, side, side, 1, int(steps[1]), int(row["batch"]), "fp16", passes=2
        )
        device = catalog.get(DEVICES[row["gpu_as_written"]])
        described.append(Query(replace(picture, pixels_per_token=pixels), device))
        usual.append(Query(picture, device))
    return described, usual, rows["time_printed"].to_numpy(dtype=np.float64)


@pytest.fixture(scope="module")
def serving():
    [own] = [part for part in bundled().predictor.parts if isinstance(part, ServingPower)]
    return own


def test_intervals_hold_published_times_of_u_nets(serving):
    described, usual, measured = asked_and_measured()
    assert len(measured) == 48
    known, unknown = serving.predict(described), serving.predict(usual)
    inside = (known.low["latency_ms"] <= measured) & (measured <= known.high["latency_ms"])
    assert inside.mean() >= 0.85
    errors = [np.abs(np.log(p.values["latency_ms"] / measured)) for p in (known, unknown)]
    assert np.median(errors[0]) < 0.6 < 1.0 < np.median(errors[1])
