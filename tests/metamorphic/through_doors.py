"""Laws of the doors: a question has one answer through each."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import forerun
from forerun.data.named.networks import network_named
from forerun.service.cli import app as commands
from forerun.service.http.app import create_app
from forerun.service.presets import PREDICT, as_prediction, presets
from forerun.service.settings import Settings
from tests.metamorphic.law import Compared, Grid, in_use, law

Post = Callable[[str, Mapping[str, Any]], dict[str, Any]]


@contextmanager
def _service() -> Iterator[Post]:
    with (
        TemporaryDirectory() as folder,
        TestClient(
            create_app(Settings(home=Path(folder), access_log=False), in_use().loaded),
            raise_server_exceptions=False,
        ) as client,
    ):
        yield lambda path, body: dict(client.post(path, json=dict(body)).json())


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Share by which two answers differ: figures, intervals and grades of each metric."""
    worst = 0.0 if one.get("metrics") and other.get("metrics") else 1.0
    own, others = one.get("metrics", {}), other.get("metrics", {})
    for name in {*own, *others}:
        mine, theirs = own.get(name), others.get(name)
        if mine is None or theirs is None or mine["grade"] != theirs["grade"]:
            worst = max(worst, 0.0 if mine is theirs else 1.0)
            continue
        for end in ("value", "low", "high"):
            a, b = mine[end], theirs[end]
            if a is None or b is None:
                worst = max(worst, 0.0 if a is b else 1.0)
            else:
                worst = max(worst, abs(a / b - 1.0) if b else float(a != b))
    return worst - 1e-9


def _printed(*words: str | Path) -> dict[str, Any]:
    """What a command prints as JSON."""
    done = CliRunner().invoke(commands, [*map(str, words), "--json"])
    return dict(json.loads(done.stdout)) if done.exit_code == 0 else {"failed": done.output}


@law
def a_question_by_name_in_a_file_and_over_http_has_one_answer(grid: Grid) -> Iterator[Compared]:
    """Every preset: the service, `predict NAME` and `predict FILE` give the same figures."""
    del grid
    with _service() as post, TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORERUN_HOME", folder)
        for preset in presets():
            body = as_prediction(preset.endpoint, preset.request)
            if body is None:
                continue
            answer = post(preset.endpoint, preset.request)
            file = Path(folder) / f"{preset.name}.json"
            file.write_text(json.dumps(preset.request))
            yield f"{preset.name}: POST {PREDICT}", _same(post(PREDICT, body), answer)
            yield f"{preset.name}: predict NAME", _same(_printed("predict", preset.name), answer)
            yield f"{preset.name}: predict FILE", _same(_printed("predict", file), answer)


@law
def a_network_by_name_and_by_file_has_one_answer(grid: Grid) -> Iterator[Compared]:
    """A network of the package, the same as a file, in Python, and over HTTP, on any device."""
    devices = ("l4", "h100-sxm-80gb", "xeon-platinum-8480-plus", "epyc-7763")
    names = (
        ("resnet50", "bert-base")
        if grid.networks
        else ("resnet50", "bert-base", "gpt2", "vit-base")
    )
    with _service() as post, TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORERUN_HOME", folder)
        for name in names:
            graph = network_named(name)
            assert graph is not None
            file = Path(folder) / f"{name}.json"
            file.write_text(json.dumps(graph.to_json()))
            for device in devices:
                workload = {"kind": "network", "graph": name, "batch_size": 8}
                answer = post(PREDICT, {"workload": workload, "device": device})
                words = ("--batch-size", "8", "--device", device)
                python = forerun.predict(graph, device=device, batch_size=8).content.model_dump()
                yield f"{name} {device}: Python", _same(python, answer)
                yield f"{name} {device}: by name", _same(_printed("predict", name, *words), answer)
                yield f"{name} {device}: by file", _same(_printed("predict", file, *words), answer)


@law
def the_default_runtime_does_not_depend_on_the_format(grid: Grid) -> Iterator[Compared]:
    """A network read from ONNX and the same graph of another reader run alike by default."""
    graph = network_named("resnet50")
    assert graph is not None
    del grid
    for device in ("xeon-platinum-8480-plus", "epyc-7763", "l4"):
        times = [
            forerun.predict(
                graph.__class__(graph.operators, graph.batch_size, source=source), device=device
            ).latency_ms.value
            for source in ("onnx", "torch")
        ]
        yield f"resnet50 {device}: ONNX against torch", abs(times[0] / times[1] - 1.0) - 0.5
