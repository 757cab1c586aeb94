"""Problems, liveness and readiness: one shape for every error, nothing of our insides."""

import json
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from forerun.data import file_store
from forerun.features.readers.language_model.reader import named_config
from forerun.service.http.app import create_app
from forerun.service.presets import LLM as ESTIMATE
from forerun.service.presets import PREDICT
from forerun.service.problems import LONGEST_DETAIL, kinds
from forerun.service.schemas.prediction import EXAMPLE
from tests.every import for_every
from tests.service.answered import problem_of

JSON = {"content-type": "application/json"}


def test_every_type_has_a_page_that_explains_it(client):
    for slug in kinds():
        page = client.get(f"/problems/{slug}")
        assert page.status_code == 200
        assert slug in page.text


def test_every_error_is_a_problem_whose_page_exists(client):
    wrong = {
        404: client.get("/v1/nothing"),
        405: client.get(PREDICT),
        400: client.post(PREDICT, content=b"\xff{", headers=JSON),
        413: client.post(PREDICT, json={"workload": "x" * 2**20}),
        422: client.post(PREDICT, json={}),
    }
    for status, answer in wrong.items():
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert {"type", "title", "status", "detail", "instance"} <= set(problem)
        assert problem["status"] == status
        assert client.get(problem["type"]).status_code == 200


def test_problems_of_one_type_have_one_title(client):
    """RFC 9457: the title of a type does not change from one occurrence to the next."""
    wrong = [EXAMPLE | {"device": 3}, DEPLOYED | {"tp": 3}]
    paths = (PREDICT, ESTIMATE)
    problems = [client.post(p, json=body).json() for p, body in zip(paths, wrong, strict=True)]
    assert {problem["type"] for problem in problems} == {"/problems/bad-request"}
    assert {problem["title"] for problem in problems} == {"The request is not valid"}


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({}, "(given an object with no fields)"),
        (None, "should be a name or an object (given null)"),
        (5, "should be a name or an object (given 5)"),
    ],
)
def test_what_is_no_model_is_named_as_json_has_it(client, model, said):
    asked = {"device": "l4", "model": model}
    assert said in client.post(ESTIMATE, json=asked).json()["detail"]


def test_a_wrong_field_is_named_with_its_value_and_nothing_else(client):
    """A union says what is wrong with the member that was meant, not with all."""
    sheet = {"name": "x", "vendor": "v", "kind": "gpu", "memory_bandwidth_gbs": -3}
    sheet["peak_tflops"] = {"fp32": 1}
    detail = client.post(PREDICT, json=EXAMPLE | {"device": sheet}).json()["detail"]
    assert "memory_bandwidth_gbs" in detail
    assert "(given -3)" in detail
    assert ";" not in detail


def test_a_huge_value_is_not_echoed(client):
    answer = client.post(PREDICT, json=EXAMPLE | {"device": "g" * 900_000})
    assert answer.status_code == 422
    assert len(answer.content) < 500


@pytest.mark.parametrize("name", ["two\nlines", "\x00", "\u202eright to left", "k" * 50_000])
def test_a_name_of_any_kind_is_repeated_in_one_line_of_bounded_length(client, name):
    refusals = [
        client.post(PREDICT, json=EXAMPLE | {name: 1}),
        client.put("/v1/devices/x", json={"peak_tflops": {name: 1}}),
        client.get("/v1/" + quote(name[:30_000])),
        client.get("/v1/devices", params={"kind": name[:30_000]}),
    ]
    for answer in refusals:
        detail = answer.json()["detail"]
        assert 400 <= answer.status_code < 500
        assert detail.isprintable()
        assert len(detail) <= LONGEST_DETAIL + 4
    assert name[:4].isprintable() or "\\" in refusals[0].json()["detail"]


def test_a_body_that_does_not_say_it_is_json_gets_the_header_it_needs(client):
    """What curl --data sends without a header."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = client.post(PREDICT, content=json.dumps(EXAMPLE), headers=form)
    problem_of(answer, 422, "Content-Type: application/json")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' + "1" * 5000 + "}", '{"a": "\\ud800"}'])
def test_json_that_python_chokes_on_is_a_problem(client, text):
    for path in (PREDICT, "/v1/predict:batch"):
        answer = client.post(path, content=text, headers=JSON)
        assert answer.status_code in (400, 422)
        assert answer.json()["status"] == answer.status_code


def test_half_a_character_anywhere_in_a_batch_is_a_problem_of_its_item(client):
    items = [EXAMPLE | {"device": "\ud800"}, EXAMPLE | {"metrics": ["\ud800"]}, {"\ud800": 1}]
    body = json.dumps({"items": [*items, EXAMPLE]})
    answer = client.post("/v1/predict:batch", content=body, headers=JSON).json()["items"]
    assert [item.get("status") for item in answer] == [422, 422, 422, None]
    assert [item["instance"] for item in answer[:3]] == ["/items/0", "/items/1", "/items/2"]


def test_a_fault_is_logged_under_the_number_that_the_asker_got(client, monkeypatch, capsys):
    def broken(question):
        secret = "hidden"
        raise RuntimeError(f"boom {len(secret)}")

    monkeypatch.setattr(client.app.state.forerun.answers, "predict", broken)
    answer = client.post(PREDICT, json=EXAMPLE | {"device": "t4"})
    assert answer.status_code == 500
    assert "boom" not in answer.text
    logged = [json.loads(line) for line in capsys.readouterr().err.splitlines() if "{" in line]
    (entry,) = [e for e in logged if e.get("event") == "fault"]
    assert entry["request_id"] == answer.json()["request_id"]
    assert "boom 6" in entry["exception"]
    assert "hidden" not in entry["exception"].replace('secret = "hidden"', "")


LINEAR = EXAMPLE["workload"]["operator"]
DEPLOYED = {"model": "llama-3.1-8b", "device": "h100", "osl": 100, "concurrency": 4, "isl": 100}
DEPLOYED_HERE = {name: value for name, value in DEPLOYED.items() if name != "device"}
REPLAYED = {"model": "llama-3.1-8b", "device": "h100", "trace": "splitwise_conv"}
GRAPH = {"format": "forerun.graph/1", "operators": [LINEAR, {"kind": "poem"}]}
CONFIG = named_config("llama-3.1-8b")
"""Content of a config.json."""
QUANTIZED = {"quant_method": "compressed-tensors", "config_groups": {"a/b": {"weights": {}}}}
DESIGN = {"kind": "design", "program": "2mm"}
FLAT = {"kind": "kernel", "operator": LINEAR | {"input_shapes": [[0]]}}
MISSPELT = DEPLOYED_HERE | {"kind": "llm_deployment", "concurency": 3}
DRAFTED = "#/engine/draft_acceptance"
NETWORK = EXAMPLE | {"workload": {"kind": "network", "graph": GRAPH}}


@for_every(
    "path, body, pointer",
    [
        (PREDICT, {}, "#/workload"),
        (PREDICT, {"workload": {"kind": "poem"}, "device": "l4"}, "#/workload"),
        (PREDICT, EXAMPLE | {"device": "l5"}, "#/device"),
        (PREDICT, EXAMPLE | {"device": {"kernel": 1}}, "#/device/name"),
        (PREDICT, EXAMPLE | {"a/b~c %é": 1}, "#/a~1b~0c%20%25%C3%A9"),
        (PREDICT, EXAMPLE | {"\ud800": 1}, "#"),
        (PREDICT, EXAMPLE | {"metrics": ["latency_ms", "joy"]}, "#/metrics/1"),
        (PREDICT, EXAMPLE | {"workload": FLAT}, "#/workload/operator/input_shapes/0/0"),
        (PREDICT, NETWORK, "#/workload/graph/operators/1"),
        ("/v1/power/sweep", NETWORK, "#/workload/graph/operators/1"),
        ("/v1/rank", {"workload": EXAMPLE["workload"], "devices": ["l4", "l5"]}, "#/devices/1"),
        ("/v1/graphs", GRAPH, "#/operators/1"),
        (ESTIMATE, {"model": {"total_parameters": 8e9}, "device": "l5"}, "#/device"),
        (ESTIMATE, DEPLOYED | {"tp": 0}, "#/tp"),
        (ESTIMATE, DEPLOYED | {"tp": 3}, "#/tp"),
        (ESTIMATE, DEPLOYED | {"parallelism": {"tp": 3}}, "#/parallelism/tp"),
        (ESTIMATE, DEPLOYED | {"parallelism": {"tensor": 3}}, "#/parallelism/tensor"),
        (ESTIMATE, DEPLOYED | {"tp": 2, "num_gpus": 3}, "#/num_gpus"),
        (ESTIMATE, DEPLOYED | {"quantization": "fp9"}, "#/quantization"),
        (ESTIMATE, DEPLOYED | {"kv_cache_dtype": "x"}, "#/kv_cache_dtype"),
        (ESTIMATE, DEPLOYED | {"concurency": 3}, "#/concurency"),
        (ESTIMATE, DEPLOYED | {"input_tokens": 3}, "#/isl"),
        (ESTIMATE, DEPLOYED | {"engine": {"max_sequence": 3}}, "#/engine/max_sequence"),
        (ESTIMATE, DEPLOYED | {"model": {"quantisation": "fp8"}}, "#/model/quantisation"),
        ("/v1/llm/replay", REPLAYED | {"engine": {"max_sequence": 3}}, "#/engine/max_sequence"),
        ("/v1/llm/replay", REPLAYED | {"request_rate": 3}, "#/request_rate"),
        ("/v1/llm/replay", REPLAYED | {"max_num_seqs": 0}, "#/max_num_seqs"),
        (PREDICT, {"workload": MISSPELT, "device": "h100"}, "#/workload/concurency"),
        (ESTIMATE, DEPLOYED | {"isl": -1}, "#/isl"),
        (ESTIMATE, DEPLOYED | {"engine": {"nextn": -1}}, "#/engine/nextn"),
        (ESTIMATE, DEPLOYED | {"engine": {"draft_acceptance": 0.5}}, DRAFTED),
        (ESTIMATE, DEPLOYED | {"engine": {"nextn": 4}}, DRAFTED),
        (
            "/v1/devices/l4/measurements",
            {"measurements": [{"workload": EXAMPLE["workload"], "metrics": {"joy": 1}}]},
            "#/measurements/0/metrics/joy",
        ),
    ],
)
def test_a_problem_points_to_the_field_of_the_body(client, path, body, pointer):
    problem = client.post(path, content=json.dumps(body), headers=JSON).json()
    assert problem["status"] < 500
    first = problem["errors"][0]
    assert first["pointer"] == pointer
    assert first["detail"] in problem["detail"]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"num_hidden_layers": 0}, "/num_hidden_layers"),
        ({"num_key_value_heads": 7}, "/num_key_value_heads"),
        ({"hidden_size": None}, "/hidden_size"),
        ({"model_type": "no such family"}, "/model_type"),
        ({"torch_dtype": "float12"}, "/torch_dtype"),
        ({"layer_types": ["full_attention"] * 31 + ["half_attention"]}, "/layer_types/31"),
        ({"model_type": "mixtral", "num_local_experts": "8"}, "/num_local_experts"),
        ({"text_config": CONFIG | {"vocab_size": -1}}, "/text_config/vocab_size"),
        ({"quantization_config": QUANTIZED}, "/quantization_config/config_groups/a~1b"),
        ({"quantization_config": {"quant_method": "fp8"}, "expert_dtype": "fp5"}, "/expert_dtype"),
        (
            {"quantization_config": {"quant_algo": "MIXED_PRECISION",
                                     "quantized_layers": {"model.x": {"quant_algo": "fp9"}}}},
            "/quantization_config/quantized_layers/model.x/quant_algo",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("lengths", [True, False])
def test_a_problem_points_to_the_field_of_a_configuration(client, lengths, changes, pointer):
    """Of requests about a deployment, and of those without lengths."""
    rest = DEPLOYED if lengths else {"device": "h100"}
    body = rest | {"model": {"config": CONFIG | changes}}
    problem = client.post(ESTIMATE, json=body).json()
    assert problem["errors"][0]["pointer"] == f"#/model/config{pointer}"
    assert problem["title"] == "A model, or its configuration, cannot be read"


def test_a_problem_points_into_the_quantisation_as_the_request_writes_it(client):
    block = {"quantization": {"quant_algo": "fp9"}}
    for own, where in (
        ({"quantization": block}, "#/quantization"),
        ({"model": {"name": "llama-3.1-8b", "quantization": block}}, "#/model/quantization"),
    ):
        problem = client.post(ESTIMATE, json=DEPLOYED | own).json()
        assert problem["errors"][0]["pointer"] == f"{where}/quantization/quant_algo"


@for_every("changes, pointer",
    [
        ({"directives": {"__PIPE__L9": "off"}}, "#/workload/directives/__PIPE__L9"),
        ({"directives": {"a/b~c": 2}}, "#/workload/directives/a~1b~0c"),
        ({"directives": {"__PIPE__L0": "off", "__PARA__L0": "x"}},
         "#/workload/directives/__PARA__L0"),
        ({"program": "3mmm"}, "#/workload/program"),
    ],
)  # fmt: skip
def test_a_problem_points_to_the_directive_of_a_design(client, changes, pointer):
    body = {"workload": DESIGN | changes, "device": "xilinx-vcu1525"}
    problem = client.post(PREDICT, json=body).json()
    assert problem["errors"][0]["pointer"] == pointer
    item = client.post("/v1/predict:batch", json={"items": [body]}).json()["items"][0]
    assert item["errors"][0]["pointer"] == f"#/items/0{pointer[1:]}"


@pytest.mark.parametrize("value", [[2], True, None, {"a": 1}, 2.5, 2**40, "x" * 65])
def test_a_directive_of_a_wrong_type_or_size_has_one_error(client, value):
    body = {"workload": DESIGN | {"directives": {"__PARA__L0": value}}, "device": "xilinx-vcu1525"}
    problem = client.post(PREDICT, json=body).json()
    (wrong,) = problem["errors"]
    assert wrong["pointer"] == "#/workload/directives/__PARA__L0"
    assert problem["detail"] == wrong["detail"]
    sized = isinstance(value, str) or value == 2**40
    assert ("a directive is a whole number, or a text" in wrong["detail"]) != sized


@pytest.mark.parametrize("spaces", [0, 2**20 // 2])
@pytest.mark.parametrize(
    ("path", "text", "pointer"),
    [
        (PREDICT, '{"device": "l4", "device": "t4"}', "#/device"),
        (PREDICT, '{"workload": {"a/b": {"n": "l4", "n": "t4"}}}', "#/workload/a~1b/n"),
        ("/v1/predict:batch", '{"items": [{}, {"device": "l4", "device": "t4"}]}',
         "#/items/1/device"),
    ],
)  # fmt: skip
def test_a_field_that_is_given_twice_has_a_pointer_and_both_values(
    client, path, text, pointer, spaces
):
    answer = client.post(path, content=text + " " * spaces, headers=JSON)
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["instance"]) == (400, 400, path)
    (wrong,) = problem["errors"]
    assert wrong["pointer"] == pointer
    assert "it is given several times, as 'l4' and 't4'" in wrong["detail"]
    assert problem["detail"] == wrong["detail"]


def test_a_field_in_the_wrong_part_is_pointed_to_with_the_part_that_has_it(client):
    problem = client.post(ESTIMATE, json=DEPLOYED | {"parallelism": {"workers": 2}})
    (wrong,) = problem.json()["errors"]
    assert wrong["pointer"] == "#/parallelism/workers"
    assert "belongs next to parallelism, not in it (given 2)" in wrong["detail"]


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        (PREDICT, EXAMPLE | {"device": "h100, a100"}, "#/device"),
        (ESTIMATE, DEPLOYED | {"device": "h100,a100"}, "#/device"),
        ("/v1/rank", {"workload": EXAMPLE["workload"], "devices": ["h100;a100"]}, "#/devices/0"),
    ],
)
def test_a_list_of_devices_as_one_name_is_said_to_be_items(client, path, body, pointer):
    problem = client.post(path, json=body).json()
    assert (problem["status"], problem["type"]) == (404, "/problems/unknown-device")
    assert "each as an item of a list" in problem["detail"]
    assert "each is an item of a request to :batch" in problem["detail"]
    assert problem["errors"][0]["pointer"] == pointer
    assert len(problem["did_you_mean"]) == 2


def test_in_a_batch_a_pointer_begins_at_the_batch(client):
    items = [EXAMPLE, EXAMPLE | {"device": "l5"}, EXAMPLE | {"metrics": 3}]
    _, unknown, unfit = client.post("/v1/predict:batch", json={"items": items}).json()["items"]
    assert unknown["errors"][0]["pointer"] == "#/items/1/device"
    assert unfit["errors"][0]["pointer"] == "#/items/2/metrics"


def test_a_parameter_is_named_as_one(client):
    problem = client.post("/v1/graphs?batch_size=0", content=b"{").json()
    assert problem["errors"][0]["parameter"] == "batch_size"
    assert "pointer" not in problem["errors"][0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1, column 2"),
        ("[1,", "line 1, column 4"),
        ('"', "line 1, column 1"),
        ("nul", "line 1, column 1"),
        ('{"workload": }', "line 1, column 14"),
        ('{\n "workload": 1,\n  oops}', "line 3, column 3"),
    ],
)
def test_a_syntax_error_says_in_which_line_it_is(client, text, said):
    problem = client.post(PREDICT, content=text, headers=JSON).json()
    assert problem["detail"].startswith(f"body: it is not valid JSON at {said}: ")
    assert problem["errors"][0]["pointer"] == "#"


def test_an_object_is_described_by_whole_names(client):
    names = {f"a_rather_long_name_{number}": number for number in range(20)}
    found = client.post(ESTIMATE, json=DEPLOYED | {"concurrency": names})
    problem_of(found, 422, "'a_rather_long_name_2' and 17 more)")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"request_rate": 3, "max_concurrency": 4}, "give one of max_concurrency and request_rate"),
        (
            {"request_rate": "inf", "concurrency": None},
            "request_rate inf needs num_prompts, the number of requests that arrive at once; or",
        ),
        ({"request_rate": 3}, "give one of concurrency and request_rate"),
        ({"osl": None}, "output_tokens is missing, which isl needs"),
        ({"osl": None, "isl": None, "tp": 1}, "input_tokens is missing, which tp needs"),
        ({"nextn": 2, "draft_acceptance": None}, "2 drafted tokens need engine.draft_acceptance"),
        ({"backend_version": "next"}, "backend_version: not written as a release"),
        ({"engine": {"version": "next"}}, "engine.version: not written as a release"),
        ({"engine": {"draft_acceptance": 0.5}}, "engine.draft_acceptance is of drafted tokens"),
        ({"enforce_eager": True, "engine": {"graphs": True}}, "which enforce_eager contradicts"),
        (
            {"enforce_eager": True, "disable_cuda_graph": False},
            "enforce_eager is True, which disable_cuda_graph contradicts (given False)",
        ),
    ],
)
def test_a_problem_names_fields_as_the_request_writes_them(client, changes, said):
    load = {"concurrency": None} if {"max_concurrency", "tp"} & set(changes) else {}
    given = {name: own for name, own in (DEPLOYED | load | changes).items() if own is not None}
    assert said in client.post(ESTIMATE, json=given).json()["detail"]


def test_a_name_that_a_part_does_not_take_is_not_suggested_for_itself(client):
    """The number of devices is a field of the operation."""
    workload = DEPLOYED_HERE | {"kind": "llm_deployment", "num_gpus": 2}
    problem = client.post(PREDICT, json={"workload": workload, "device": "h100"}).json()
    assert problem["errors"][0]["pointer"] == "#/workload/num_gpus"
    assert "'num_gpus' is no field (given 2)" in problem["detail"]


def test_not_ready_until_the_predictors_are_loaded(settings, loaded):
    app = create_app(settings, loaded)
    before = TestClient(app)
    assert before.get("/healthz").status_code == 200
    problem_of(before.get("/readyz"), 503, slug="not-ready")
    with TestClient(app) as after:
        assert after.get("/readyz").status_code == 200


def test_requests_are_counted_by_route_and_cache_hits_too(client):
    for _ in range(2):
        client.post(PREDICT, json=EXAMPLE)
    client.get("/v1/devices/l4")
    text = client.get("/metrics").text
    assert 'forerun_requests_total{route="/v1/predict",status="200"} 2.0' in text
    assert 'route="/v1/devices/{name}"' in text
    assert 'forerun_answers_total{from_cache="yes"} 1.0' in text
    assert 'forerun_predictor_info{version="test"} 1.0' in text


def test_the_loaded_predictor_is_named_with_its_card(client):
    (model,) = client.get("/v1/models").json()["models"]
    assert model["version"] == "test"
    assert model["parts"] == ["roofline"]
    assert model["card"] == "# card"


def test_the_front_page_shows_how_to_ask(client):
    page = client.get("/").text
    assert "curl" in page
    fields = ("graph", "devices", "batch_size", "precision", "phase", "runtime", "optimizer")
    assert all(f'name="{name}"' in page for name in fields)
    assert "/v1/predict/model" in page
    assert client.get("/docs").status_code == 200


def test_readiness_says_whether_things_can_be_stored(client, settings, monkeypatch):
    ready = client.get("/readyz").json()
    assert (ready["storing"], ready["not_storing"]) == (True, None)
    monkeypatch.setattr(file_store.os, "access", lambda path, mode: False)
    answer = client.get("/readyz")
    assert answer.status_code == 200, "questions are answered all the same"
    assert answer.json()["storing"] is False
    assert "FORERUN_HOME" in answer.json()["not_storing"]
