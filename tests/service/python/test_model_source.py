"""Every form of a model gives the same graph as its file, and is left as it was."""

import json

import onnx
import pytest

import forerun
from forerun.data.errors import InputError, UnanswerableQuery, UnreadableModel
from forerun.features.readers import read_graph
from forerun.service.python.model_source import Reading, name_of, read_model
from tests.hugging_face import cache_in
from tests.service.conftest import GRAPH
from tests.zoo import needs_zoo

ONE = Reading()
BERT = {
    "model_type": "bert",
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "vocab_size": 100,
    "num_attention_heads": 4,
}


def test_an_onnx_model_is_read_from_path_text_bytes_and_object(tiny):
    graph = read_graph(tiny)
    model = onnx.load(tiny)
    for given in (tiny, str(tiny), tiny.read_bytes(), model):
        assert read_model(given, ONE).digest == graph.digest
    assert model.graph.initializer[0].float_data, "the object keeps its weights"
    assert read_model(model, Reading(batch_size=8)).digest == read_graph(tiny, batch_size=8).digest


def test_a_graph_is_read_from_object_mapping_and_file(tmp_path):
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(GRAPH.to_json()))
    for given in (GRAPH, GRAPH.to_json(), file):
        assert read_model(given, ONE).digest == GRAPH.digest


@pytest.mark.slow
def test_a_torch_module_is_read_and_keeps_its_weights():
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(8, 8)
    module = torch.nn.Sequential(layer, torch.nn.Dropout(), torch.nn.Linear(8, 8))
    module[2].weight = layer.weight
    before = layer.weight.detach().clone()
    graph = read_model(module, Reading(batch_size=4, example_inputs=torch.zeros(1, 8)))
    assert graph.operators[0].output_shapes == ((4, 8),)
    assert graph.parameter_elements == 8 * 8 + 8 + 8, "the shared weight counts once"
    assert torch.equal(layer.weight, before)
    assert layer.weight.device.type == "cpu"
    assert module.training
    by_name = read_model(module, Reading(batch_size=4, example_inputs={"input": torch.zeros(1, 8)}))
    assert by_name.digest == graph.digest
    program = torch.export.export(module.eval(), (torch.zeros(4, 8),))
    assert [o.kind for o in read_model(program, ONE).operators] == [o.kind for o in graph.operators]
    with pytest.raises(forerun.InputError, match="give example_inputs="):
        read_model(module, ONE)


@pytest.mark.slow
def test_a_configuration_is_read_from_mapping_file_object_and_its_model(tmp_path):
    transformers = pytest.importorskip("transformers")
    file = tmp_path / "config.json"
    file.write_text(json.dumps(BERT))
    config = transformers.BertConfig(**{k: v for k, v in BERT.items() if k != "model_type"})
    graph = read_graph(file)
    for given in (BERT, config, transformers.BertModel(config)):
        assert read_model(given, ONE).operators == graph.operators


@pytest.mark.slow
def test_a_model_of_hugging_face_is_read_from_the_local_cache_alone(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    cache_in(tmp_path, monkeypatch)
    with pytest.raises(UnreadableModel, match=r"hf download me/mine config\.json"):
        read_model("hf:me/mine", ONE)
    assert len(read_model("hf:bert", ONE)) > 100, "a known type has a default configuration"


@needs_zoo
@pytest.mark.slow
def test_a_network_of_timm_is_read_by_name():
    small = read_model("timm:resnet18", Reading(image_size=32, batch_size=2))
    assert small.operators[0].input_shapes[0] == (2, 3, 32, 32)
    with pytest.raises(UnreadableModel, match="Unknown model"):
        read_model("timm:resnet1800", ONE)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, "A model of type int cannot be read"),
        ({"layers": 3}, "this one has none of these"),
        ("gone.onnx", "there is no such file"),
        (".", "it is a folder; give a file"),
        (b"not a model", "not an ONNX model"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(given, said):
    with pytest.raises(forerun.InputError, match=said) as caught:
        read_model(given, ONE)
    assert "\n" not in str(caught.value)


def test_headings_name_the_model(tiny):
    assert name_of(tiny) == "tiny.onnx"
    assert name_of("timm:resnet18") == "timm:resnet18"
    assert name_of(onnx.load(tiny)) == "tiny"
    assert name_of(BERT) == "bert"
    assert name_of(GRAPH) == f"graph {GRAPH.digest[:8]}"


def test_a_network_that_is_not_known_is_answered_with_near_names_and_where_all_are_listed():
    with pytest.raises(UnreadableModel, match=r"vgg16.*`forerun presets` lists.*forerun trace"):
        forerun.predict("vgg13", device="l4")


@pytest.mark.parametrize(
    "size", [{"sequence_length": 128}, {"image_size": 96}, {"shapes": {"x": (1, 3, 96, 96)}}]
)
def test_a_network_by_name_is_not_answered_at_another_size_than_its_own(size):
    (option,) = size
    with pytest.raises(InputError, match=f"{option}: resnet50 comes with forerun at one size"):
        forerun.predict("resnet50", device="l4", **size)


def test_a_point_in_a_name_makes_no_file_of_it():
    with pytest.raises(UnreadableModel, match="no network of that name"):
        forerun.predict("resnet-5.1", device="l4")
    with pytest.raises(UnreadableModel, match="there is no such file"):
        forerun.predict("missing.onnx", device="l4")


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-8b"])
def test_the_name_of_a_language_model_leads_to_the_question_about_serving(name):
    with pytest.raises(UnreadableModel, match=f"a language model. `forerun llm estimate {name}`"):
        forerun.predict(name, device="l4")


@pytest.mark.parametrize(("device", "grade"), [("mi300x", "C"), ("h100-sxm-80gb", "B")])
def test_half_precision_on_gpus_of_another_maker_is_extrapolated(device, grade):
    answer = forerun.predict("vit-base", device=device, batch_size=8, precision="fp16")
    assert answer.latency_ms.grade == grade


def test_an_accelerator_that_is_no_gpu_is_refused_for_that_reason():
    with pytest.raises(UnanswerableQuery, match="only for GPUs and processors; gaudi2 is neither"):
        forerun.predict("resnet50", device="gaudi2", precision="bf16")
