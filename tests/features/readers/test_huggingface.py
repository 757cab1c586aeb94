"""Hugging Face configurations: built without weights, with the published number of FLOPs."""

import json

import pytest

from forerun.data.errors import BadShape, UnreadableModel
from forerun.features.operators.table import OperatorTable
from forerun.features.readers import read_graph
from forerun.features.readers.language_model.reader import read_language_model

pytest.importorskip("transformers")
BERT = {"model_type": "bert", "architectures": ["BertModel"], "num_hidden_layers": 2}


def write(tmp_path, **config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return path


def test_a_bert_layer_has_the_flops_of_its_formula(tmp_path):
    tokens, width = 2 * 64, 768
    graph = read_graph(write(tmp_path, **BERT), batch_size=2, sequence_length=64)
    table = OperatorTable.of_graph(graph)
    linear = table.flops[[op.kind == "linear" for op in graph.operators]].sum()
    # Kaplan et al. 2020: 12 width^2 weights a layer; the pooler works on one token a sequence.
    assert linear == pytest.approx(2 * 2 * 12 * tokens * width**2 + 2 * 2 * width**2, rel=1e-6)
    assert [op.kind for op in graph.operators].count("attention") == 2
    assert graph.source == "huggingface"


def test_llama_reads_its_grouped_heads(tmp_path):
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
    }
    graph = read_graph(write(tmp_path, **config), sequence_length=32)
    assert [op.kind for op in graph.operators].count("attention") == 2
    assert not graph.unknown


@pytest.mark.parametrize("missing", ["num_hidden_layers", "hidden_size"])
def test_a_language_model_without_a_size_is_refused_as_by_plans(tmp_path, missing):
    """And does not get the size that transformers takes by default."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = {"model_type": "llama", "vocab_size": 100, "intermediate_size": 128, **sizes}
    del config[missing]
    file = write(tmp_path, **config)
    with pytest.raises(UnreadableModel, match=f"{missing} is missing") as caught:
        read_graph(file)
    with pytest.raises(UnreadableModel) as by_plans:
        read_language_model(file)
    assert str(caught.value) == str(by_plans.value)


def test_an_image_model_takes_pixels(tmp_path):
    config = {"model_type": "resnet", "depths": [1, 1], "hidden_sizes": [32, 64]}
    config |= {"embedding_size": 16, "architectures": ["ResNetForImageClassification"]}
    graph = read_graph(write(tmp_path, **config), batch_size=4)
    assert graph.operators[0].kind == "conv"
    assert graph.batch_size == 4


WHISPER = {
    "model_type": "whisper",
    **{"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 100},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 2},
    **{"encoder_ffn_dim": 128, "decoder_ffn_dim": 128},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
}


@pytest.mark.slow
def test_a_network_for_speech_reads_frames_and_tokens(tmp_path):
    graph = read_graph(write(tmp_path, **WHISPER), batch_size=2, sequence_length=16)
    attended = [op.input_shapes[:2] for op in graph.operators if op.kind == "attention"]
    encoder, decoder, across = (2, 2, 1500, 32), (2, 2, 16, 32), ((2, 2, 16, 32), (2, 2, 1500, 32))
    assert attended.count((encoder, encoder)) == 2
    assert attended.count((decoder, decoder)) == 2
    assert attended.count(across) == 2
    assert ("decoder_input_ids", 1, 16, "given") in {
        (b.input, b.axis, b.size, b.why) for b in graph.bound_dimensions
    }


@pytest.mark.slow
@pytest.mark.parametrize("family", ["vit", "yolos"])
def test_images_get_the_size_that_is_given(tmp_path, family):
    small = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = write(tmp_path, model_type=family, intermediate_size=64, **small)
    graph = read_graph(config, image_size=384)
    assert graph.operators[0].input_shapes[0] == (1, 3, 384, 384)
    assert {(b.axis, b.size) for b in graph.bound_dimensions if b.why == "given"} == {
        (2, 384),
        (3, 384),
    }


def test_shapes_and_an_image_size_for_text_are_refused(tmp_path):
    with pytest.raises(BadShape, match="takes no shapes"):
        read_graph(write(tmp_path, **BERT), shapes={"input_ids": (1, 8)})
    with pytest.raises(BadShape, match="reads input_ids, not images"):
        read_graph(write(tmp_path, **BERT), image_size=64)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "no-such-model"},
        {"model_type": "bert", "hidden_size": "wide"},
        {"model_type": "bert", "num_hidden_layers": 10**9},
        {"model_type": "bert", "hidden_size": 770},
    ],
)
def test_a_wrong_configuration_gets_one_clear_line(tmp_path, config):
    with pytest.raises(UnreadableModel) as caught:
        read_graph(write(tmp_path, **config))
    assert "\n" not in str(caught.value)
