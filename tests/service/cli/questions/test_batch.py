"""`forerun batch`: answers of a file are those of `POST /v1/predict:batch`, whatever the engine."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from forerun.data.errors import InputError
from forerun.service.cli.questions import shards
from forerun.service.http.app import create_app
from forerun.service.schemas.prediction import EXAMPLE, EXAMPLE_NETWORK
from forerun.service.settings import Settings
from tests.service.conftest import linear_row

QUESTIONS = [
    EXAMPLE,
    EXAMPLE_NETWORK,
    *({"workload": linear_row(n, None)["workload"], "device": "l4"} for n in range(64, 70)),
]
WRONG = [{"workload": 3, "device": "l4"}, EXAMPLE | {"device": "nothing"}]


def written(path, questions):
    path.write_text("\n".join(json.dumps(each) for each in questions) + "\n")
    return path


def test_answers_are_those_of_the_service_in_the_order_of_the_file(
    forerun, tmp_path, trained, monkeypatch
):
    monkeypatch.setattr(shards, "MOST", 3)
    file, output = written(tmp_path / "q.jsonl", QUESTIONS), tmp_path / "answers.jsonl"
    code, out, err = forerun("batch", file, "-o", output)
    assert (code, out) == (0, ""), err
    assert "8 of 8 questions are answered" in err
    assert [*tmp_path.glob("*.part")] == []
    ours = [json.loads(line) for line in output.read_text().splitlines()]
    app = create_app(Settings(home=tmp_path / "other", port=0), trained)
    with TestClient(app) as client:
        theirs = [client.post("/v1/predict", json=each).json() for each in QUESTIONS]
    assert ours == theirs


def test_what_cannot_be_answered_is_a_problem_in_its_place(forerun, tmp_path):
    file = written(tmp_path / "q.jsonl", [EXAMPLE, *WRONG])
    file.write_text(file.read_text() + "\nno json {\n" + "[" * 100_000 + "\n")
    code, out, err = forerun("batch", file)
    answers = [json.loads(line) for line in out.splitlines()]
    assert (code, len(answers)) == (2, 5), err
    assert "metrics" in answers[0]
    kinds = [each["type"].removeprefix("/problems/") for each in answers[1:]]
    assert kinds[1:] == ["unknown-device", "not-json", "not-json"]
    assert [each["instance"] for each in answers[1:]] == [f"/lines/{n}" for n in (2, 3, 5, 6)]
    assert "1 of 5 questions" in err


@pytest.mark.parametrize("content", [None, "", "\n\n"])
def test_a_file_without_questions_is_one_line(forerun, tmp_path, content):
    file = tmp_path / "q.jsonl"
    if content is not None:
        file.write_text(content)
    err = forerun.refused("batch", file)
    assert len([line for line in err.splitlines() if str(file) in line]) == 1
    assert "Traceback" not in err


def test_a_place_that_cannot_be_written_is_one_line(forerun, tmp_path):
    file = written(tmp_path / "q.jsonl", [EXAMPLE])
    err = forerun.refused("batch", file, "-o", tmp_path / "missing/answers.jsonl")
    assert "cannot be written" in err
    assert "Traceback" not in err


def test_answers_go_into_a_pipe_and_leave_it_one(forerun, tmp_path):
    file, pipe = written(tmp_path / "q.jsonl", [EXAMPLE]), tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_text)
        forerun.ok("batch", file, "-o", pipe)
        assert "latency_ms" in json.loads(read.result())["metrics"]
    assert pipe.is_fifo()


def test_the_answers_do_not_replace_the_questions(forerun, tmp_path):
    file = written(tmp_path / "q.jsonl", [EXAMPLE])
    assert "would overwrite the questions" in forerun.refused("batch", file, "-o", file)
    assert json.loads(file.read_text()) == EXAMPLE


def test_a_machine_that_would_answer_otherwise_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path))
    with pytest.raises(InputError, match="one FORERUN_HOME or database"):
        shards.answered([(1, json.dumps(EXAMPLE))], "another/00000000")


@pytest.mark.slow
def test_answers_of_a_cluster_are_the_same_bit_for_bit(forerun, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="needs the ray extra")
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    file = written(tmp_path / "q.jsonl", [*QUESTIONS, *WRONG])
    _, here, _ = forerun("batch", file)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        _, there, err = forerun("batch", file, "--engine", "ray")
    finally:
        ray.shutdown()
    assert there == here, err
