"""Sealed folders: their digests, their examples, and what is loaded of them."""

import json
from functools import cache
from pathlib import Path

import onnx
import pytest

from forerun.data.errors import BadArtifact
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.features.readers import read_graph
from forerun.models.artifact.examples import (
    FILE,
    TOLERANCE,
    check_examples,
    example_answers,
    examples_text,
)
from forerun.models.artifact.sealed_folder import (
    bundled,
    check,
    load_predictor,
    seal,
)
from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline
from forerun.models.benchmark_suites.history import BenchmarkHistory
from forerun.models.catalog import Scope
from forerun.models.contract import PredictorContract
from forerun.models.router import Router
from tests.devices import CATALOG

# Sealed folders: changed, missing and executable files are refused.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "constant"
    Constant({"latency_ms": 3.5}).save(target)
    seal(target, "2026-01-01")
    return target


def test_a_sealed_predictor_loads(folder):
    assert load_predictor(folder) == Constant({"latency_ms": 3.5})


def test_the_version_depends_on_content_not_on_the_day(folder, tmp_path):
    other = tmp_path / "other"
    Constant({"latency_ms": 3.5}).save(other)
    assert seal(other, "2027-12-31").version == check(folder).version
    Constant({"latency_ms": 3.6}).save(other)
    assert seal(other, "2027-12-31").version != check(folder).version


def test_a_changed_file_is_refused(folder):
    path = folder / "predictor.json"
    path.write_text(path.read_text().replace("3.5", "9.5"))
    with pytest.raises(BadArtifact, match=r"predictor\.json is missing, changed"):
        load_predictor(folder)


def test_only_files_that_a_scope_reads_are_hashed_and_all_are_listed(tmp_path):
    folder = tmp_path / "router"
    Router((Constant({"latency_ms": 3.5}), BenchmarkHistory())).save(folder)
    sealed = seal(folder, "2026-01-01")
    networks = Scope(frozenset({"network"}))
    left_out, read = (
        next(folder.glob(f"*-{name}/*")) for name in ("benchmark_history", "constant")
    )
    text = left_out.read_text()
    left_out.write_text(f"{text} ")
    assert check(folder, networks) == sealed
    for scope in (None, Scope(frozenset({"benchmark"}))):
        with pytest.raises(BadArtifact, match="is missing, changed"):
            check(folder, scope)
    left_out.unlink()
    with pytest.raises(BadArtifact, match="is missing, changed"):
        check(folder, networks)
    left_out.write_text(text)
    extra = left_out.parent / "extra.txt"
    extra.write_text("tree")
    with pytest.raises(BadArtifact, match=r"extra\.txt"):
        check(folder, networks)
    extra.unlink()
    read.write_text(f"{read.read_text()} ")
    with pytest.raises(BadArtifact, match="is missing, changed"):
        check(folder, networks)


def test_an_unlisted_file_is_refused(folder):
    (folder / "extra.txt").write_text("tree")
    with pytest.raises(BadArtifact, match=r"extra\.txt"):
        load_predictor(folder)


@pytest.mark.parametrize("name", ["model.pkl", "model.joblib", "model.pt", "run.py"])
def test_a_file_that_could_run_code_is_refused(folder, name):
    (folder / name).write_bytes(b"\x80\x04.")
    with pytest.raises(BadArtifact, match="is not allowed in an artifact"):
        seal(folder, "2026-01-01")


def test_a_link_out_of_the_folder_is_refused(folder):
    (folder / "link.txt").symlink_to("/etc/hostname")
    with pytest.raises(BadArtifact, match="is not allowed in an artifact"):
        check(folder)


def test_an_unknown_predictor_is_refused(folder):
    path = folder / "predictor.json"
    content = json.loads(path.read_text()) | {"name": "oracle"}
    path.write_text(json.dumps(content))
    seal(folder, "2026-01-01")
    with pytest.raises(BadArtifact, match="'oracle'"):
        load_predictor(folder)


def test_a_folder_without_manifest_is_refused(tmp_path):
    with pytest.raises(BadArtifact, match=r"manifest\.json"):
        load_predictor(tmp_path)


# Predictors that answer otherwise than when they were sealed are refused.


PREDICTOR = Router((Roofline(), Constant({"power_w": 3.0})))
KERNEL = "kernel on l4"


@pytest.fixture
def examples_folder(tmp_path):
    (tmp_path / FILE).write_text(examples_text(PREDICTOR))
    return tmp_path


def test_the_same_predictors_pass(examples_folder):
    check_examples(examples_folder, PREDICTOR)
    assert set(example_answers(PREDICTOR)[KERNEL]) >= {"latency_ms", "power_w"}


def test_a_folder_without_examples_passes(tmp_path):
    check_examples(tmp_path, PREDICTOR)


@pytest.mark.parametrize(
    "other", [Router((Roofline(), Constant({"power_w": 3.1}))), Router((Roofline(),))]
)
def test_another_or_a_missing_answer_is_refused_by_name(examples_folder, other):
    with pytest.raises(BadArtifact, match=r"power_w of .* was 3 .*sealed"):
        check_examples(examples_folder, other)


@pytest.mark.parametrize(("factor", "passes"), [(1 + TOLERANCE / 2, True), (1 + 2e-6, False)])
def test_rounding_passes_and_more_does_not(examples_folder, factor, passes):
    answers = json.loads((examples_folder / FILE).read_text())
    answers[KERNEL]["latency_ms"] *= factor
    (examples_folder / FILE).write_text(json.dumps(answers))
    if passes:
        check_examples(examples_folder, PREDICTOR)
    else:
        with pytest.raises(BadArtifact, match="latency_ms of kernel on l4"):
            check_examples(examples_folder, PREDICTOR)


# The bundled predictors: sealed, small and plausible on real networks.


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


def test_resnet50_on_a_known_gpu_is_what_people_measure():
    """The timm benchmark: 4,218 to 4,303 images a second on an RTX 4090, amp, eager, batch 1,024.

    The file here is another ResNet-50 in another format, so readers must agree, too.
    """
    answer = LOADED.predictor.predict([ask(batch=1024)])[0]
    assert 1024e3 / answer.estimates["latency_ms"].value == pytest.approx(4250, rel=0.25)
    assert "network_latency" in {part.name for part in LOADED.predictor.parts}
