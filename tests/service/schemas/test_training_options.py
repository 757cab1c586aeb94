"""Options of training: every one reaches the workload, and what contradicts itself is said."""

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.errors import BadRequest
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.named.networks import network_named
from forerun.data.workload import InferenceSetup, Network, TrainingSetup
from forerun.service.schemas.prediction import NetworkIn
from forerun.service.schemas.run_options import (
    OPTIONS,
    BadTrainingSetup,
    InferenceIn,
    RunIn,
    TrainingIn,
    given_in,
    inference_of,
    inference_out,
    set_ups_of,
    training_of,
    training_out,
)
from forerun.service.schemas.workloads import operation_of, workload_of
from tests.service.conftest import GRAPH

GIVEN = {"optimizer": "adam8bit", "accumulation": 4, "data_parallel": 2, "zero_stage": 3}


def test_every_option_of_a_set_up_can_be_given_and_has_its_default():
    assert training_of("training", 8, TrainingIn()) == TrainingSetup()


def test_what_is_given_reaches_the_workload_and_comes_back():
    setup = training_of("training", 8, given_in(TrainingIn, GIVEN | {"lora_rank": None}))
    assert setup == TrainingSetup(**GIVEN)
    assert training_out(Network(GRAPH, 8, "fp32", "training", setup)) == TrainingIn(**GIVEN)
    assert given_in(TrainingIn, dict.fromkeys(OPTIONS)) is None


@pytest.mark.parametrize(
    ("phase", "given", "said"),
    [
        ("inference", {"optimizer": "sgd"}, "optimizer: options of training"),
        ("training", {"accumulation": 3}, "accumulation 3 does not divide the batch size 8"),
        ("training", {"zero_stage": 2}, "data_parallel says how many"),
        ("training", {"optimizer": "adamx"}, "optimizer 'adamx'"),
        ("training", {"zero_stage": 4}, "zero_stage 4"),
        ("training", {"sequence_parallel": True}, "tensor_parallel says how many"),
        ("training", {"checkpoint_blocks": True, "checkpoint_segments": 2}, "give one"),
        ("training", {"tensor_parallel": 0}, "tensor_parallel 0"),
        ("training", {"dropout": 1.0}, "dropout 1.0"),
        ("training", {"frozen_weights": "nf4"}, "frozen_weights is about adapters"),
        ("training", {"lora_targets": "attention"}, "lora_targets is about adapters"),
        ("training", {"lora_rank": 4, "frozen_weights": "int3"}, "frozen_weights 'int3'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(phase, given, said):
    with pytest.raises(BadTrainingSetup, match=said) as refused:
        training_of(phase, 8, given_in(TrainingIn, given))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"tensor_parallel": 3}, None),
        ({"tensor_parallel": 5}, "Tensor parallel 5 does not divide .* 1, 2, 3, 4, 6, 12 do"),
        ({"pipeline_parallel": 4}, None),
        ({"pipeline_parallel": 5}, "Pipeline parallel 5 does not divide .* 12 have attention"),
        ({"pipeline_parallel": 24}, "Pipeline parallel 24 is more than the model has layers, 12"),
    ],
)
def test_degrees_divide_heads_and_layers_at_every_door(training, said):
    gpt2, device = network_named("gpt2"), DeviceCatalog.load().get("h100")
    run = RunIn(phase="training", **training)
    body = NetworkIn(kind="network", graph=gpt2.digest, phase="training", training=training)
    if said is None:
        assert run.query(gpt2, device, run.set_ups()).workload == workload_of(body, lambda _: gpt2)
        return
    field = next(iter(training))
    with pytest.raises(BadRequest, match=said) as refused:
        run.query(gpt2, device, run.set_ups())
    assert refused.value.field == (field,)
    with pytest.raises(BadRequest, match=said) as refused:
        workload_of(body, lambda _: gpt2)
    assert refused.value.field == ("training", field)


def layers(*kinds, width=12):
    """A network without attention: layers of these kinds, one after the other."""
    shapes = (((8, width),), ((8, width),))
    ops = (Operator(kind, kind, *shapes, width * width) for kind in kinds)
    return OperatorGraph(tuple(ops), batch_size=8)


@pytest.mark.parametrize(
    ("training", "kinds", "said"),
    [
        ({"tensor_parallel": 12}, ["linear", "linear"], None),
        ({"tensor_parallel": 16}, ["linear", "linear"], "by: the narrowest has 12 channels"),
        ({"tensor_parallel": 2}, ["conv", "conv"], "by: there is none"),
        ({"pipeline_parallel": 3}, ["conv", "conv", "linear"], None),
        (
            {"pipeline_parallel": 3},
            ["conv", "batch_norm", "linear"],
            "than the model has layers, 2",
        ),
    ],
)
def test_without_attention_each_device_has_a_layer_or_a_channel(training, kinds, said):
    run, device = RunIn(phase="training", **training), DeviceCatalog.load().get("h100")
    graph = layers(*kinds)
    if said is None:
        assert run.query(graph, device, run.set_ups()).network.training is not None
        return
    with pytest.raises(BadRequest, match=said) as refused:
        run.query(graph, device, run.set_ups())
    assert refused.value.field == tuple(training)


def test_the_help_of_degrees_says_which_metrics_are_null():
    for name in ("tensor_parallel", "pipeline_parallel"):
        words = TrainingIn.model_fields[name].description
        assert "beyond 1, time and power are null" in words


def test_stages_of_a_network_without_attention_end_anywhere():
    run = RunIn(phase="training", pipeline_parallel=3, tensor_parallel=3)
    query = run.query(network_named("resnet-50"), DeviceCatalog.load().get("h100"), run.set_ups())
    assert query.operation.device_count == 9


def test_devices_are_counted_along_all_directions():
    setup = TrainingSetup(data_parallel=2, tensor_parallel=4, pipeline_parallel=3)
    assert operation_of(Network(GRAPH, 8, "fp32", "training", setup), 90.0).device_count == 24
    assert operation_of(Network(GRAPH)).device_count == 1


def test_every_option_of_inference_can_be_given_and_has_its_default():
    assert inference_of("inference", InferenceIn()) == InferenceSetup()
    given = {"logits": "all", "cache_tokens": 128, "cache_precision": "fp8", "joined_cache": True}
    setup = inference_of("inference", given_in(InferenceIn, given))
    assert setup == InferenceSetup(**given)
    assert inference_out(Network(GRAPH, 8, inference=setup)) == InferenceIn(**given)
    assert inference_out(Network(GRAPH, 8)) is None


def test_attention_goes_to_the_set_up_of_the_phase():
    options = {"attention": "eager"}
    assert set_ups_of("training", 8, options) == (TrainingSetup(attention="eager"), None)
    assert set_ups_of("inference", 8, options) == (None, InferenceSetup(attention="eager"))
    assert set_ups_of("inference", 8, {}) == (None, None)


@pytest.mark.parametrize(
    ("phase", "given", "said"),
    [
        ("training", {"logits": "all"}, "logits: options of inference"),
        ("inference", {"dropout": 0.1}, "dropout: options of training"),
        ("inference", {"cache_tokens": -1}, "cache_tokens -1"),
    ],
)
def test_options_of_the_other_phase_are_refused(phase, given, said):
    with pytest.raises(BadTrainingSetup, match=said):
        set_ups_of(phase, 8, given)
