"""Answers: kept by content and predictor, exchanged whole, never a number that is none."""

import json
from dataclasses import replace
from threading import Event, Thread

import numpy as np
import pytest

from forerun.models.baselines.roofline import Roofline
from forerun.models.limit import LATENCY, POWER, Limit
from forerun.service.adaptation.predictor_in_use import Adaptation
from forerun.service.http.answers import Answers
from forerun.service.schemas.prediction import EXAMPLE, EXAMPLE_NETWORK, PredictIn
from forerun.service.schemas.serving import EXAMPLE_DEPLOYMENT, LlmEstimateIn
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore


@pytest.fixture
def answers(tmp_path, loaded):
    devices, graphs = DeviceStore(tmp_path), GraphStore(tmp_path / "graphs", 10)
    adaptation = Adaptation(loaded, tmp_path / "measurements", devices, graphs.get, 10)
    return Answers(adaptation, devices, graphs, kept=3)


def about(**changes):
    return PredictIn.model_validate(EXAMPLE_NETWORK | changes)


def test_equal_content_is_one_question_however_it_was_named(answers):
    by_name = answers.question(about())
    sheet = answers.devices.get("rtx-4090")
    digest = answers.graphs.put(by_name.query.workload.graph)
    workload = EXAMPLE_NETWORK["workload"] | {"graph": digest}
    by_content = answers.question(about(device=sheet.model_dump(), workload=workload))
    assert by_content.key == by_name.key
    assert by_name.key != answers.question(about(device="l4")).key
    assert by_name.key != answers.question(about(metrics=["latency_ms"])).key
    kernel = answers.question(PredictIn.model_validate(EXAMPLE))
    assert kernel.key != by_name.key


def test_a_sheet_that_differs_in_one_figure_is_another_question(answers):
    sheet = answers.devices.get("rtx-4090").model_dump()
    more = sheet | {"l2_mib": sheet["l2_mib"] + 1}
    one, other = (answers.question(about(device=given)).key for given in (sheet, more))
    assert one != other


def test_the_longest_unused_answer_leaves_first(answers):
    questions = [answers.question(about(device=name)) for name in ("l4", "t4", "a30", "a40")]
    for question in questions[:3]:
        answers.predict(question)
    assert answers.before(questions[0]) is not None
    answers.predict(questions[3])
    assert [answers.before(q) is None for q in questions] == [False, True, False, False]


def test_another_predictor_answers_from_the_next_question_on(answers, loaded):
    question = answers.question(about())
    first = json.loads(answers.predict(question))
    answers.swap(replace(loaded, version="next"))
    assert answers.before(question) is None
    second = json.loads(answers.predict(question))
    assert (first["predictor"]["version"], second["predictor"]["version"]) == ("test", "next")


def test_an_answer_begun_before_an_exchange_is_not_given_after_it(answers, loaded):
    """It is kept under the predictor that made it."""
    begun, exchanged = Event(), Event()

    class Slow(Roofline):
        def predict(self, queries):
            begun.set()
            assert exchanged.wait(10)
            return super().predict(queries)

    answers.swap(replace(loaded, predictor=Slow(), version="slow"))
    question = answers.question(about())
    worker = Thread(target=lambda: answers.predict(question))
    worker.start()
    assert begun.wait(10)
    answers.swap(replace(loaded, version="next"))
    exchanged.set()
    worker.join()
    assert answers.before(question) is None


def test_an_unknown_operator_alone_is_counted_too(answers):
    operator = EXAMPLE["workload"]["operator"] | {"kind": "unknown", "name": "mystery"}
    asked = EXAMPLE | {"workload": EXAMPLE["workload"] | {"operator": operator}}
    answer = json.loads(answers.predict(answers.question(PredictIn.model_validate(asked))))
    assert answer["unknown_operators"] == {"mystery": 1}
    assert not answer["in_domain"]
    assert "unknown" in answer["limits"][0]


def test_only_limits_of_the_requested_metrics_are_returned(answers, loaded):
    class Limited(Roofline):
        def predict(self, queries):
            batch = Limit("", LATENCY, feature="batch", value=9.0, low=1.0, high=2.0)
            limits = [(batch, Limit("not measured", POWER))]
            return replace(super().predict(queries), values={LATENCY: np.ones(1)}, limits=limits)

    answers.swap(replace(loaded, predictor=Limited()))
    answer = json.loads(answers.predict(answers.question(about())))
    assert answer["limits"] == ["batch is 9, the training set has 1 to 2"]
    (detail,) = answer["limit_details"]
    assert detail == {
        "metric": "latency_ms",
        "severity": "outside",
        "message": "batch is 9, the training set has 1 to 2",
        "feature": "batch",
        "value": 9.0,
        "low": 1.0,
        "high": 2.0,
    }
    assert answer["in_domain"] is False
    assert answer["metrics"]["latency_ms"]["in_domain"] is False


def test_what_was_estimated_is_kept_for_one_predictor(answers, loaded):
    request = EXAMPLE_DEPLOYMENT | {"device": answers.devices.get("l4")}
    asked = [LlmEstimateIn.model_validate(request)]
    questions = [answers.question(about())]
    (first,), (served,) = answers.predicted(questions), answers.served(asked)
    assert answers.predicted(questions)[0] is first
    assert answers.served(asked)[0] is served
    answers.swap(replace(loaded, version="next"))
    assert answers.predicted(questions)[0].predictor.version == "next"
    assert answers.served(asked)[0].predictor.version == "next"
