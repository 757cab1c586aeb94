"""Measured serving runs adapt the answers about that model on that device, and no others."""

import json

import pytest

from forerun.data.errors import BadTable, InputError, UnknownMetric
from forerun.models.artifact.sealed_folder import LoadedPredictor, bundled
from forerun.models.llm_serving import LlmLatency
from forerun.models.router import Router
from forerun.service.adaptation.measurement_files import read_rows
from forerun.service.adaptation.predictor_in_use import Adaptation
from forerun.service.answers.observing import observe, summary_of
from forerun.service.schemas.measured_rows import BadMeasurement, MeasuredRow, queries_of
from forerun.service.stores.database.store import Records
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore
from forerun.service.stores.places import Place
from tests.devices import CATALOG, H100

BASE = LoadedPredictor(Router((LlmLatency(),)), "closed-form", "2026-01-01", "")
SERVED = {
    "kind": "llm_deployment",
    "model": "llama-3.1-8b",
    "input_tokens": 1024,
    "output_tokens": 256,
    "parallelism": {"tensor": 1},
}


def row(concurrency: float, **metrics: float) -> MeasuredRow:
    workload = {**SERVED, "concurrency": concurrency}
    return MeasuredRow.model_validate({"workload": workload, "metrics": metrics})


@pytest.fixture
def make(tmp_path):
    """Adaptations over one folder, as several processes have them."""

    def made(base=BASE):
        devices, graphs = (
            DeviceStore(Place(tmp_path) / "devices"),
            GraphStore(Place(tmp_path) / "graphs", 10),
        )
        return Adaptation(base, Place(tmp_path) / "measurements", devices, graphs.get, 10)

    return made


@pytest.fixture
def adaptation(make):
    return make()


def tpot(adaptation: Adaptation, model: str = "llama-3.1-8b", device: str = "h100") -> float:
    workload = {**SERVED, "model": model, "concurrency": 48}
    given = [MeasuredRow.model_validate({"workload": workload, "metrics": {}})]
    queries = queries_of(given, CATALOG.get(device), GraphStore)
    return float(adaptation.current().loaded.predictor.predict(queries).values["tpot_ms"][0])


def test_runs_twice_as_slow_slow_the_answers_of_that_model_on_that_device(adaptation):
    before, elsewhere = tpot(adaptation), tpot(adaptation, device="l40s")
    queries = queries_of([row(n, tpot_ms=1.0) for n in (8, 16, 32, 64)], H100, GraphStore)
    said = adaptation.current().loaded.predictor.predict(queries).values
    runs = [
        row(n, tpot_ms=2 * own, ttft_ms=first)
        for n, own, first in zip((8, 16, 32, 64), said["tpot_ms"], said["ttft_ms"], strict=True)
    ]
    learnt = adaptation.learn(H100.name, runs)
    assert 1.4 * before < tpot(adaptation) <= 2.01 * before
    assert tpot(adaptation, device="l40s") == elsewhere
    error = learnt.errors.metrics["tpot_ms"]
    assert error.mape_after < error.mape_before == pytest.approx(50, abs=0.1)


def test_a_run_is_stored_and_read_again(adaptation, make):
    adaptation.learn(H100.name, [row(8, tpot_ms=12.0, ttft_ms=40.0)])
    again = make()
    assert tpot(again) == tpot(adaptation)
    assert len(again.rows_of(H100.name) or []) == 1


def test_stored_runs_keep_an_acceptance_that_was_never_given(adaptation, make, tmp_path):
    """Requests without one were stored with the default, 0, and are read as they stand."""
    drafting = {**SERVED, "concurrency": 8, "engine": {"draft_tokens": 4, "draft_acceptance": 0.0}}
    given = {"workload": drafting, "metrics": {"tpot_ms": 40.0}}
    adaptation.learn(H100.name, [MeasuredRow.model_validate(given)])
    [stored] = Records.of_texts(Place(tmp_path) / "measurements").values().values()
    assert '"draft_acceptance":0.0' in stored
    assert len(make().rows_of(H100.name) or []) == 1


def test_a_deployment_has_no_latency_of_a_run_and_must_say_its_degrees(adaptation):
    with pytest.raises(UnknownMetric, match="latency_ms"):
        adaptation.learn(H100.name, [row(8, latency_ms=12.0)])
    workload = {name: value for name, value in SERVED.items() if name != "parallelism"}
    content = {"workload": {**workload, "concurrency": 8}, "metrics": {"tpot_ms": 12.0}}
    with pytest.raises(InputError, match=r"parallelism.tensor is missing"):
        adaptation.learn(H100.name, [MeasuredRow.model_validate(content)])


def test_a_load_generator_s_result_is_a_measurement_of_the_deployment_that_is_named(tmp_path):
    result = {
        "model_id": "served-under-another-name",
        "max_concurrency": 16,
        "completed": 10,
        "total_input_tokens": 10_240,
        "total_output_tokens": 2_560,
        "mean_ttft_ms": 90.0,
        "mean_tpot_ms": 11.0,
    }
    file = tmp_path / "run.json"
    file.write_text(json.dumps(result))
    named = {"model": "llama-3.1-8b", "parallelism": {"tensor": 2}}
    (found,) = read_rows(file, H100, CATALOG, named).rows
    (query,) = queries_of([found], H100, GraphStore)
    assert query.operation.device_count == query.deployment.devices == 2
    assert (query.deployment.load.input_tokens, query.deployment.load.concurrency) == (1024, 16)
    assert found.measured() == {"ttft_ms": 90.0, "tpot_ms": 11.0}


@pytest.mark.parametrize("lines", [False, True])
def test_a_result_of_llama_bench_is_a_measurement_of_llama_cpp_with_its_model(tmp_path, lines):
    test = {
        **{"backends": "CUDA", "model_filename": "m/Qwen2.5-7B-Instruct-Q4_K_M.gguf"},
        **{"model_type": "qwen2 7B Q4_K - Medium", "type_k": "f16", "n_ubatch": 256},
        **{"n_gpu_layers": 99, "n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 5120.0},
    }
    tests = [test, test | {"n_prompt": 0, "n_gen": 128, "avg_ts": 50.0}]
    file = tmp_path / "run.jsonl"
    file.write_text("\n".join(map(json.dumps, tests)) if lines else json.dumps(tests))
    given = {"parallelism": {"tensor": 1}, "engine": {"name": "vllm"}}
    prompt, tokens = read_rows(file, H100, CATALOG, given).rows
    assert (prompt.measured(), tokens.measured()) == ({"ttft_ms": 100.0}, {"tpot_ms": 20.0})
    (query,) = queries_of([prompt], H100, GraphStore)
    deployment = query.deployment
    assert (deployment.engine.name, deployment.engine.max_batched_tokens) == ("llama.cpp", 256)
    assert (deployment.load.input_tokens, deployment.load.concurrency) == (512, 1)
    assert deployment.model.weight_bytes() < 5.5e9, "Q4_K_M"
    file.write_text(json.dumps([test | {"n_gpu_layers": 20}]))
    with pytest.raises(BadTable, match="divided between GPU and processor"):
        read_rows(file, H100, CATALOG, given)
    file.write_text(json.dumps([test | {"model_filename": "other.gguf"}]))
    with pytest.raises(BadTable, match="by --model"):
        read_rows(file, H100, CATALOG, given)


def test_other_json_is_refused_with_the_formats_that_are_read(tmp_path):
    file = tmp_path / "run.json"
    file.write_text("{}")
    with pytest.raises(BadTable, match="no result of vLLM's or SGLang's benchmark"):
        read_rows(file, H100, CATALOG)


@pytest.mark.parametrize("metrics", [{"tpot_ms": 4.0}, {"ttft_ms": 10.0, "tpot_ms": 20.0}])
def test_runs_that_the_device_cannot_do_are_refused(adaptation, metrics):
    """Eight billion weights of two bytes take 4.5 ms at 3,350 GB/s, a prompt of 1,024 15 ms."""
    with pytest.raises(InputError, match=r"the device takes (4\.5|15\.)") as refused:
        adaptation.learn(H100.name, [row(1, **metrics)])
    assert refused.value.field[:2] == ("measurements", 0)
    assert not adaptation.store.live(H100.name)


@pytest.mark.parametrize(
    ("changes", "path", "says"),
    [
        ({"tp": 3}, ("parallelism", "tensor"), "measurements.0: Tensor parallel 3 does not divide"),
        ({"tp": 1, "pp": 33}, ("parallelism", "pipeline"), "more than the model has layers, 32"),
        ({"tp": 2, "ep": 2}, ("parallelism", "expert"), "of models with experts"),
        (
            {"tp": 1, "prefill": {"parallelism": {"tp": 3}}},
            ("prefill", "parallelism", "tensor"),
            "Tensor parallel 3 does not divide",
        ),
    ],
)
@pytest.mark.parametrize("kept", ["learnt", "observed"])
def test_degrees_that_no_engine_runs_are_refused(adaptation, tmp_path, changes, path, says, kept):
    lengths = {name: value for name, value in SERVED.items() if name != "parallelism"}
    workload = {**lengths, "concurrency": 8, **changes}
    metrics = {"tpot_ms": 12.0, "ttft_ms": 40.0}
    rows = [MeasuredRow.model_validate({"workload": workload, "metrics": metrics})]
    with pytest.raises(BadMeasurement, match=says) as refused:
        if kept == "learnt":
            adaptation.learn(H100.name, rows)
        else:
            observe(adaptation, DeviceStore(Place(tmp_path) / "devices"), H100.name, rows)
    assert refused.value.field == ("measurements", 0, "workload", *path)


def test_an_adaptation_is_scored_by_the_answers_as_observations_are(make, tmp_path):
    """Rates of two predictors make up an answer, which the predictor of times alone does not."""
    adaptation, devices = make(bundled()), DeviceStore(Place(tmp_path) / "devices")
    runs = [row(n, tpot_ms=1.3 * n**0.5, ttft_ms=30.0 * n**0.5) for n in (16, 32, 64, 128)]
    live = summary_of(observe(adaptation, devices, H100.name, runs).kept)
    learnt = adaptation.learn(H100.name, runs).errors.metrics
    for metric in ("ttft_ms", "tpot_ms"):
        assert learnt[metric].mape_before == pytest.approx(live.errors[metric].mape, rel=1e-6)
        held = 100 * learnt[metric].held_before
        assert held == pytest.approx(live.errors[metric].coverage_90)
        assert learnt[metric].mape_after < learnt[metric].mape_before
