"""Decoders as networks: the operators that Transformers is traced to run, from the layers alone."""

from collections import Counter
from dataclasses import replace

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import OperatorGraph
from forerun.data.language_models.training import LlmTraining, TrainingLayout
from forerun.features.links import data_messages_s
from forerun.features.llm_training.graph import are_networks, decoder_graph, networks
from forerun.features.llm_training.layouts import Layouts
from forerun.features.memory.plan import memory_plan
from forerun.features.readers.language_model.reader import named_language_model, read_language_model
from tests.public_cases.graphs import CONFIGURATIONS, case_graph

LLAMA = named_language_model("llama-3.1-8b")
RUN = LlmTraining(LLAMA, 1024, 8, 1, framework="fsdp", lora_rank=16)
SMALL = ("add", "sub", "diff", "ne", "cumsum", "index", "eq", "le", "__and__", "cos", "sin", "to")
"""Operators of masks and tables of positions, which are a few of thousands."""


def traced(name: str) -> tuple[OperatorGraph, OperatorGraph]:
    """The graph that was traced of a configuration, and that of its description."""
    fields, tokens = CONFIGURATIONS[name]
    assert tokens is not None
    model = read_language_model(dict(fields) | {"vocab_size": fields.get("vocab_size", 50_257)})
    return OperatorGraph.from_json(case_graph(name)), decoder_graph(model, tokens)


@pytest.mark.parametrize("name", ["llama-2-7b-1304", "llama-2-13b-1304", "qwen-7b-8192"])
def test_a_decoder_is_the_graph_that_transformers_is_traced_to(name: str) -> None:
    """The same operators with the same shapes, but for masks and tables of positions."""
    by_trace, by_layers = traced(name)

    def counted(graph: OperatorGraph) -> Counter[object]:
        return Counter(
            (op.kind, op.name, op.input_shapes, op.output_shapes)
            for op in graph.operators
            if op.batched and op.input_shapes and op.input_shapes[0] != (1, 1)
            if len(op.output_shapes[0]) > 2
        )

    own, other = counted(by_layers), counted(by_trace)
    differing = (own - other) + (other - own)
    assert {str(key[1]).removeprefix("aten.") for key in differing} <= set(SMALL)  # type: ignore[index]
    assert sum(differing.values()) < 20 < 0.05 * len(by_layers)
    assert by_layers.parameter_elements == pytest.approx(by_trace.parameter_elements, rel=1e-6)


def test_memory_of_a_decoder_is_that_of_its_traced_graph() -> None:
    """LoRA of Llama 2 7B, with every block recomputed and without."""
    by_trace, by_layers = traced("llama-2-7b-1304")
    for recompute in ("none", "full"):
        layout = TrainingLayout(micro_batch=2, recompute=recompute)  # type: ignore[arg-type]
        run = replace(RUN, sequence_tokens=1304, layout=layout, frozen_weights="nf4")
        (network,) = networks(run, Layouts.of(run))
        own = memory_plan(replace(network, graph=by_layers)).live
        assert own == pytest.approx(memory_plan(replace(network, graph=by_trace)).live, rel=1e-3)


def test_a_network_says_what_the_run_says() -> None:
    """Micro-batches are accumulated; PEFT's adapters are in 32 bits on frozen weights in 16."""
    layout = TrainingLayout(micro_batch=2, zero_stage=3, recompute="full")
    run = replace(RUN, devices=2, layout=layout, optimizer="adam8bit", frozen_weights="int8")
    (network,) = networks(run, Layouts.of(run))
    setup = network.training
    assert setup is not None
    assert (network.batch_size, setup.accumulation, setup.data_parallel) == (4, 2, 2)
    assert (setup.zero_stage, setup.checkpoint_blocks, setup.lora_rank) == (3, True, 16)
    assert (network.precision, setup.adapter_precision) == ("bf16", "fp32")
    assert (setup.optimizer, setup.frozen_weights) == ("adam8bit", "int8")
    (whole,) = networks(replace(run, lora_rank=0, frozen_weights=None), Layouts.of(run))
    assert whole.precision == "amp_bf16", "trained weights are kept in 32 bits"


def test_what_divides_layers_or_is_no_plain_decoder_is_no_network() -> None:
    """Each for itself; data-parallel devices divide nothing but the batch."""
    run = replace(RUN, devices=4, global_batch=16)
    layouts = [
        TrainingLayout(),
        TrainingLayout(zero_stage=3),
        TrainingLayout(tensor=2),
        TrainingLayout(pipeline=2),
        TrainingLayout(context=2),
        TrainingLayout(offload="optimizer"),
        TrainingLayout(recompute="selective"),
    ]
    found = are_networks(run, Layouts.of(run, layouts))
    assert found.tolist() == [True, True, False, False, False, False, False]
    for model in ("Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3"):
        assert not are_networks(
            replace(run, model=named_language_model(model)), Layouts.of(run)
        ).any()
    assert not are_networks(replace(run, precision="fp8"), Layouts.of(run)).any()


def test_queries_and_keys_are_normalised_where_their_family_does() -> None:
    """Qwen3 has two norms more in a layer than Llama; both norm widths are counted."""
    own = named_language_model("qwen3-8b")
    means = [op for op in decoder_graph(own, 64).operators if op.name == "aten.mean"]
    assert len(means) == 4 * len(own.layers) + 1
    assert {op.attributes["width"] for op in means} == {4096, 128}


def test_sharded_frozen_weights_are_gathered_for_each_micro_batch() -> None:
    """ZeRO 3 sends what ZeRO 2 does, all weights for both passes, and gradients once less."""
    device = DeviceCatalog.load().get("h100-sxm-80gb")
    layouts = [TrainingLayout(micro_batch=2, zero_stage=stage) for stage in (2, 3)]  # type: ignore[arg-type]
    run = replace(RUN, devices=2)
    shards, whole = (
        data_messages_s(network, device) * device.interconnect_gbs * 1e9 / 2.0 / 0.5
        for network in networks(run, Layouts.of(run, layouts))
    )
    weights = 2.0 * LLAMA.parameters()
    assert whole + shards / 2.0 == pytest.approx(2.0 * 2.0 * weights + shards, rel=0.02)
    assert 0.0 < shards < 0.05 * weights
