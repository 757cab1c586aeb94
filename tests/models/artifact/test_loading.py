"""The bundled predictors: sealed, small and plausible on real networks."""

from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import onnx
import pytest

from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.features.readers import read_graph
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.baselines.roofline import Roofline
from forerun.models.contract import PredictorContract
from tests.devices import CATALOG

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
LOADED = bundled()


@cache
def graph_of(name):
    """The graph of a network, which all questions about it share."""
    return read_graph(LIGHT / f"{name}.onnx")


def ask(name="light_resnet50", device="rtx-4090", batch=64, precision="amp", **software):
    return Query(
        Network(graph_of(name), batch, precision), CATALOG.get(device), Software(**software)
    )


@pytest.mark.slow
class TestBundledContract(PredictorContract):
    def make(self):
        return LOADED.predictor

    def queries(self):
        return [
            ask(),
            ask(device="v100-pcie-32gb", precision="fp32"),
            ask(device="h100-sxm", precision="bf16", runtime="compiled"),
            ask("light_squeezenet", device="rtx-3090", batch=1),
        ]


def test_its_card_names_the_training_sets():
    for words in ("timm_bench", "neusight", "torch_op_energy", "## Limits", "## Rebuild"):
        assert words in LOADED.card


@pytest.mark.parametrize("name", ["light_resnet50", "light_squeezenet", "light_densenet121"])
@pytest.mark.parametrize("device", ["rtx-3090", "v100-pcie-32gb", "l4", "a100-pcie-80gb"])
@pytest.mark.parametrize("precision", ["amp", "fp32"])
def test_no_network_beats_its_bound_by_far_and_all_metrics_are_answered(name, device, precision):
    query = ask(name, device, precision=precision)
    answer = LOADED.predictor.predict([query])[0]
    bound = Roofline().predict([query]).values["latency_ms"][0]
    # cuDNN's Winograd convolutions need 2.25 times fewer multiplications than are counted.
    assert answer.estimates["latency_ms"].value > 0.45 * bound
    assert set(answer.estimates) >= {"latency_ms", "peak_memory_mib", "power_w", "energy_j"}
    assert answer.estimates["power_w"].value <= 1.05 * query.device.tdp_w


def test_resnet50_on_a_known_gpu_is_what_people_measure():
    """The timm benchmark: 4,218 to 4,303 images a second on an RTX 4090, amp, eager, batch 1,024.

    The file here is another ResNet-50 in another format, so readers must agree, too.
    """
    answer = LOADED.predictor.predict([ask(batch=1024)])[0]
    assert 1024e3 / answer.estimates["latency_ms"].value == pytest.approx(4250, rel=0.25)
    assert "network_latency" in {part.name for part in LOADED.predictor.parts}


def test_the_bundle_is_small():
    """What is added to 19.3 MB must earn its place in every installation."""
    with as_file(files("forerun.models") / "pretrained") as folder:
        assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 19_400_000
