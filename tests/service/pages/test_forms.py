"""Forms of pages: fields, addresses, and requests that become forms."""

from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from pydantic import ValidationError

from forerun.data.errors import BadRequest
from forerun.data.list_prices import list_price
from forerun.service.http.pages.compare import BadPrices, CompareForm
from forerun.service.http.pages.language_models import FORM as SERVING
from forerun.service.http.pages.neighbours import NeighboursForm
from forerun.service.http.pages.requests import EXAMPLES, further_presets
from forerun.service.http.pages.run_form import RunForm, network_presets
from forerun.service.presets import as_prediction, presets


def serving(address):
    """The request of an address of the page of language models."""
    return SERVING.asked({**SERVING.given(address), "device": "l4"})


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
    assert CompareForm(devices=["l4", "t4"], prices=text).prices_per_hour() == {
        "l4": 0.71, "t4": 0.35,
    }  # fmt: skip


def test_list_prices_stand_in_the_form_until_one_is_given():
    form = CompareForm(devices=["l4", "t4", "rtx-4090"], prices="l4=9, a10g=1")
    prices = form.prices_per_hour()
    assert prices == {"l4": 9.0, "t4": list_price("t4").usd_per_device_hour}
    assert CompareForm(devices=["l4"]).written_prices() == "l4=0.8048"


@pytest.mark.parametrize("text", ["l4", "l4=cheap", "l4=1.2.3"])
def test_prices_that_are_no_prices_are_quoted(text):
    with pytest.raises(BadPrices, match=r"l4|1\.2\.3"):
        CompareForm(prices=text).prices_per_hour()


def test_prices_count_only_where_cost_is_ranked():
    form = CompareForm(graph="resnet50", devices=["l4"], prices="l4=1")
    assert form.ranking(["l4"]).prices_per_hour == {}
    by_cost = form.model_copy(update={"objective": "cost"})
    assert by_cost.ranking(["l4"]).prices_per_hour == {"l4": 1.0}


def test_a_language_model_is_asked_with_lengths():
    asked = serving("concurrency=4&input_tokens=512&tensor=2")
    assert (asked.model.name, asked.concurrency, asked.input_tokens) == ("llama-3.1-8b", 4, 512)
    assert asked.parallelism.tensor == 2
    arriving = serving("requests_per_s=2&quantization=fp8&usd_per_device_hour=1")
    assert (arriving.requests_per_s, arriving.concurrency) == (2, None)
    assert (arriving.model.quantization, arriving.usd_per_device_hour) == ("fp8", 1)


def test_a_language_model_is_asked_by_its_configuration():
    asked = serving("name=mine.json&config={%22model_type%22:%22llama%22}")
    assert (asked.model.name, asked.model.config) == (None, {"model_type": "llama"})
    with pytest.raises(BadRequest, match="not valid JSON"):
        serving("config={")


def test_a_command_of_an_engine_stands_in_place_of_what_is_usual():
    command = "vllm serve Qwen/Qwen3-8B --max-num-seqs 8 && vllm bench serve --random-input-len 99"
    asked = serving(urlencode({"command": f"{command} --max-concurrency 7"}))
    assert (asked.model.name, asked.input_tokens, asked.concurrency) == ("Qwen/Qwen3-8B", 99, 7)
    assert asked.engine.max_sequences == 8
    assert serving(urlencode({"command": command, "input_tokens": 5})).input_tokens == 5


def test_a_program_of_ones_own_is_described_by_its_fields():
    form = NeighboursForm(candidate="another program", residents=["triad"], working_set_mib=3)
    asked = form.asked()
    assert asked.candidate.working_set_mib == 3
    assert [each.name for each in asked.host.residents] == ["triad"]


def test_every_preset_that_can_be_asked_here_is_offered_once():
    links = [*network_presets("/"), *further_presets()]
    asked = [each for each in presets() if as_prediction(each.endpoint, each.request)]
    assert len(asked) > len(presets()) - 5
    assert sorted(link.title for link in links) == sorted(each.title for each in asked)
    assert len({link.address for link in (*links, *EXAMPLES)}) == len(links) + len(EXAMPLES)
