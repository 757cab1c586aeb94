"""What is evaluated is what a user gets: whole answers and every door agree to the last digit.

Questions that are answered together agree to nine digits, since sums over many rows are rounded in
another order.
"""

import json
import random
import sys
from functools import cache

import pytest
from fastapi.testclient import TestClient

import forerun
from forerun.data.device import DeviceCatalog
from forerun.data.named.networks import network_named
from forerun.models.answers.served_models import InUse
from forerun.models.answers.whole import WholeAnswers
from forerun.models.artifact.sealed_folder import bundled
from forerun.service.answers.requested import question_of
from forerun.service.cli import main
from forerun.service.http.app import create_app
from forerun.service.schemas.prediction import PredictIn
from forerun.service.settings import Settings

pytestmark = pytest.mark.slow

QUESTIONS = 80
GPUS = ("h100-sxm-80gb", "h200-sxm-141gb", "a100-sxm-80gb", "l4", "l40s", "t4", "rtx-4090")
GPUS += ("mi300x",)
PROCESSORS = ("xeon-platinum-8380", "epyc-7742")
FLOATS = ("fp32", "fp16", "bf16", "amp")


def network(draw):
    training = draw.random() < 0.3
    device = draw.choice(GPUS if training or draw.random() < 0.8 else PROCESSORS)
    workload = {
        "kind": "network",
        "graph": draw.choice(("resnet50", "bert-base", "mobilenet-v3", "gpt2", "swin-tiny")),
        "batch_size": draw.choice((1, 2, 7, 16, 64, 200)),
        "precision": draw.choice(FLOATS) if device in GPUS else "fp32",
        "phase": "training" if training else "inference",
    }
    runtime = draw.choice(("eager", "compiled")) if device in GPUS else "onnxruntime"
    return {"workload": workload, "device": device, "software": {"runtime": runtime}}


def kernel(draw):
    m, n, k = (2 ** draw.randint(4, 13) for _ in range(3))
    linear = {
        "kind": "linear",
        "input_shapes": [[m, k]],
        "output_shapes": [[m, n]],
        "parameter_elements": k * n,
    }
    relu = {
        "kind": "elementwise",
        "name": "relu",
        "input_shapes": [[m, n]],
        "output_shapes": [[m, n]],
    }
    operator = draw.choice((linear, relu))
    workload = {"kind": "kernel", "operator": operator, "precision": draw.choice(FLOATS)}
    return {"workload": workload, "device": draw.choice(GPUS)}


def served_model(draw):
    workload = {
        "kind": "llm_serving",
        "total_parameters": draw.choice((1e9, 8e9, 70e9)),
        "request": draw.choice(("chat", "reasoning", "code")),
        "max_sequences": draw.choice((1, 8, 64, 512)),
    }
    return {"workload": workload, "device": draw.choice(GPUS), "operation": {"device_count": 1}}


def diffusion(draw):
    side = draw.choice((512, 768, 1024))
    workload = {
        "kind": "diffusion",
        "parameters": draw.choice((2e9, 12e9)),
        "height": side,
        "width": side,
        "steps": draw.randint(4, 50),
        "batch_size": draw.choice((1, 4, 16)),
    }
    return {"workload": workload, "device": draw.choice(GPUS), "operation": {"device_count": 1}}


def deployment(draw):
    load = (
        {"concurrency": draw.choice((1, 3, 32, 200, 3000))}
        if draw.random() < 0.5
        else {"requests_per_s": draw.choice((0.1, 1.0, 5.0, 60.0))}
    )
    workload = {
        "kind": "llm_deployment",
        "model": {"name": draw.choice(("llama-3.1-8b", "mixtral-8x7b", "qwen2.5-7b"))},
        "input_tokens": draw.choice((64, 500, 1024, 8000)),
        "output_tokens": draw.choice((1, 128, 700)),
        **load,
    }
    return {"workload": workload, "device": draw.choice(GPUS)}


def architecture(draw):
    operators = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
    of = [[f"{draw.choice(operators)}~{i}" for i in range(n)] for n in (1, 2, 3)]
    cell = "+".join(f"|{'|'.join(node)}|" for node in of)
    workload = {"kind": "architecture", "space": "nb201", "cell": cell}
    return {"workload": workload, "device": draw.choice(("pixel3", "1080ti-1", "2080ti-32"))}


def design(draw):
    directives = {
        "__PARA__L0": draw.choice(("1", "2", "4")),
        "__PARA__L1": draw.choice(("1", "4", "10")),
        "__PIPE__L0": draw.choice(("off", "", "flatten")),
    }
    return {
        "workload": {"kind": "design", "program": "gesummv", "directives": directives},
        "device": "xilinx-vcu1525",
        "software": {"framework": "sdx", "version": "2018.3"},
    }


def benchmark(draw):
    settings = {
        "model": draw.choice(("resnet50", "bert-99", "3d-unet-99", "dlrm-99")),
        "scenario": draw.choice(("Offline", "Server", "SingleStream")),
    }
    return {
        "workload": {"kind": "benchmark", "suite": "mlperf_inference", "settings": settings},
        "device": draw.choice(("h100-sxm-80gb", "a100-sxm-80gb", "l4", "t4")),
        "operation": {"device_count": draw.choice((1, 2, 8))},
    }


KINDS = {
    make.__name__: make
    for make in (
        *(network, kernel, served_model, diffusion),
        *(deployment, architecture, design, benchmark),
    )
}


def drawn(kind):
    draw = random.Random(kind)
    return [KINDS[kind](draw) for _ in range(QUESTIONS)]


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Kind -> its questions with the replies of the service, which has the bundled predictors."""
    app = create_app(Settings(home=tmp_path_factory.mktemp("doors")), bundled())
    with TestClient(app, raise_server_exceptions=False) as client:
        yield cache(
            lambda kind: [(b, client.post("/v1/predict", json=b).json()) for b in drawn(kind)]
        )


FIELDS = ("value", "low", "high", "coverage", "grade")


def figures(metrics):
    """Metric and field -> what an answer says of it: estimate, interval, coverage and grade."""
    return {
        (name, field): estimate and estimate[field]
        for name, estimate in metrics.items()
        for field in FIELDS
    }


def evaluated(bodies):
    """Answers by the object that protocols evaluate."""
    catalog, loaded = DeviceCatalog.load(), bundled()
    in_use = InUse(loaded)
    asked = [
        question_of(PredictIn.model_validate(b), catalog.get, network_named, loaded.predictor)
        for b in bodies
    ]
    return [row_of(WholeAnswers(in_use, o.metrics).predict([o.query]), 0) for o in asked]


def row_of(found, row):
    """The figures of one row of predictions."""
    columns = (found.values, found.low, found.high, found.row_coverage)
    answer = {}
    for name, grades in found.grades.items():
        numbers = [float(column[name][row]) for column in columns]
        known = [None if own != own else own for own in numbers]
        answer[name] = (
            dict(zip(FIELDS, (*known, grades[row]), strict=True)) if grades[row] else None
        )
    return figures(answer)


def same(answer, other):
    """Whether the figures of two answers are equal in the first nine digits."""
    close = {
        key: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
        for key, value in figures(other.get("metrics", {})).items()
    }
    return figures(answer.get("metrics", {})) == close


@pytest.mark.parametrize("kind", KINDS)
def test_protocols_evaluate_what_the_product_answers(asked, kind):
    wrong = []
    answered = 0
    for (body, reply), own in zip(asked(kind), evaluated(drawn(kind)), strict=True):
        given = figures(reply.get("metrics", {})) or dict.fromkeys(own)
        answered += any(given.values())
        if given != own:
            wrong.append((body, given, own))
    assert answered > 0.5 * QUESTIONS, f"only {answered} of {QUESTIONS} are answered"
    assert not wrong, f"{len(wrong)} of {QUESTIONS} differ, such as {json.dumps(wrong[0])}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_file_has_the_answers_of_the_service(asked, kind, tmp_path, monkeypatch):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    questions, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    questions.write_text("".join(json.dumps(body) + "\n" for body in drawn(kind)))
    monkeypatch.setattr(sys, "argv", ["forerun", "batch", str(questions), "-o", str(answers)])
    with pytest.raises(SystemExit):
        main()
    lines = answers.read_text().splitlines()
    for (body, reply), line in zip(asked(kind), lines, strict=True):
        assert same(json.loads(line), reply), body


@pytest.mark.parametrize("kind", KINDS)
def test_python_has_the_answers_of_the_service(asked, kind, tmp_path, monkeypatch):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    for body, reply in asked(kind)[:50]:
        if "metrics" not in reply or kind == "kernel" or {"count", "framework"} & _options(body):
            continue
        own = {name: value for name, value in body["workload"].items() if name != "kind"}
        if kind == "network":
            graph = network_named(own.pop("graph"))
            runtime = body["software"]["runtime"]
            answer = forerun.predict(graph, device=body["device"], runtime=runtime, **own)
        else:
            answer = forerun.predict(body["workload"], device=body["device"])
        assert same(answer.content.model_dump(), reply), body


def _options(body):
    """What the Python call has no option for."""
    several = body.get("operation", {}).get("device_count", 1) > 1
    return {*({"count"} if several else ()), *body.get("software", {})}
