"""Forms of pages: fields, addresses, and requests that become forms."""

from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import ValidationError

from forerun.service.http.pages.compare import BadPrices, CompareForm
from forerun.service.http.pages.language_models import LlmForm
from forerun.service.http.pages.neighbours import NeighboursForm
from forerun.service.http.pages.requests import further_presets
from forerun.service.http.pages.run_form import RunForm, network_presets
from forerun.service.presets import presets


def test_fields_that_were_left_empty_take_their_defaults():
    form = RunForm(graph="resnet50", runtime="", power_limit_w="", devices=["", "l4"])
    assert form.runtime is None
    assert form.power_limit_w is None
    assert form.devices == ["l4"]


def test_a_number_that_is_one_of_several_is_taken_as_a_form_sends_it():
    assert RunForm(zero_stage="2").zero_stage == 2
    with pytest.raises(ValidationError, match="zero_stage"):
        RunForm(zero_stage="4")


def test_no_device_is_not_the_usual_devices():
    assert RunForm(devices=[""]).devices == []
    assert RunForm().devices != []


def test_an_address_asks_what_the_form_asks():
    form = RunForm(graph="resnet50", devices=["l4", "t4"], batch_size=8, phase="training")
    parts = urlsplit(form.address("/compare"))
    fields = {k: v if k == "devices" else v[0] for k, v in parse_qs(parts.query).items()}
    assert parts.path == "/compare"
    assert RunForm(**fields) == form


def test_a_form_is_a_request_with_every_option():
    form = RunForm(
        graph="resnet50", devices=["l4"], batch_size=8, precision="bf16", phase="training",
        runtime="compiled", optimizer="sgd", lora_rank=4, power_limit_w=60,
    )  # fmt: skip
    asked = form.asked("l4")
    assert asked.workload.batch_size == 8
    assert asked.workload.precision == "bf16"
    assert asked.workload.training.optimizer == "sgd"
    assert asked.workload.training.lora_rank == 4
    assert asked.software.runtime == "compiled"
    assert asked.operation.power_limit_w == 60
    assert form.asked("l4", 64).workload.batch_size == 64


def test_options_of_training_are_left_out_of_inference():
    assert RunForm(graph="resnet50", optimizer="sgd").workload().training is None


def test_a_runtime_that_was_not_chosen_is_left_to_the_device():
    asked = RunForm(graph="resnet50").asked("l4")
    assert "runtime" not in asked.software.model_fields_set


def test_a_request_with_an_option_that_no_field_has_is_no_form():
    request = {"workload": {"kind": "network", "graph": "resnet50"}, "device": "l4"}
    assert RunForm.of_request("x", request).devices == ["l4"]
    other = {**request["workload"], "inference": {"logits": "all"}}
    assert RunForm.of_request("x", {**request, "workload": other}) is None
    kernel = {"workload": {"kind": "kernel"}, "device": "l4"}
    assert RunForm.of_request("x", kernel) is None


@pytest.mark.parametrize("text", ["l4=0.71, t4=0.35", "l4:0.71;t4 0.35", "l4=0.71\nt4=0.35,"])
def test_prices_are_read_however_they_are_separated(text):
    assert CompareForm(prices=text).prices_per_hour() == {"l4": 0.71, "t4": 0.35}


@pytest.mark.parametrize("text", ["l4", "l4=cheap", "l4=1.2.3"])
def test_prices_that_are_no_prices_are_quoted(text):
    with pytest.raises(BadPrices, match=r"l4|1\.2\.3"):
        CompareForm(prices=text).prices_per_hour()


def test_prices_count_only_where_cost_is_ranked():
    form = CompareForm(graph="resnet50", devices=["l4"], prices="l4=1")
    assert form.ranking().prices_per_hour == {}
    assert form.model_copy(update={"objective": "cost"}).ranking().prices_per_hour == {"l4": 1.0}


def test_a_language_model_is_asked_in_billions():
    model = LlmForm(parameters_billion=8, active_billion=2, max_sequences=4).asked().model
    assert (model.total_parameters, model.active_parameters) == (8e9, 2e9)
    assert LlmForm(parameters_billion=8, max_sequences=4).asked(16).model.max_sequences == 16
    with pytest.raises(ValidationError, match="active_parameters"):
        LlmForm(parameters_billion=1, active_billion=2).asked()


def test_a_model_by_its_name_is_asked_with_lengths():
    form = LlmForm(name="llama-3.1-8b", max_sequences=4, input_tokens=512, tensor_parallel=2)
    asked = form.asked(16)
    assert (asked.model.name, asked.concurrency, asked.input_tokens) == ("llama-3.1-8b", 16, 512)
    assert asked.parallelism.tensor == 2
    assert LlmForm().asked().model.name == LlmForm().named
    arriving = LlmForm(requests_per_s=2, weights="fp8", usd_per_device_hour=1).asked()
    assert (arriving.requests_per_s, arriving.concurrency) == (2, None)
    assert (arriving.model.quantization, arriving.usd_per_device_hour) == ("fp8", 1)


def test_a_program_of_ones_own_is_described_by_its_fields():
    form = NeighboursForm(candidate="another program", residents=["triad"], working_set_mib=3)
    asked = form.asked()
    assert asked.candidate.working_set_mib == 3
    assert [each.name for each in asked.host.residents] == ["triad"]


def test_every_preset_is_offered_once():
    links = [*network_presets("/"), *further_presets()]
    assert sorted(link.title for link in links) == sorted(each.title for each in presets())
    assert len({link.address for link in links}) == len(links)
