"""Options of training: every one reaches the workload, and what contradicts itself is said."""

from dataclasses import fields

import pytest

from forerun.data.workload import Network, TrainingSetup
from forerun.service.training_options import (
    OPTIONS,
    BadTrainingSetup,
    TrainingIn,
    training_in,
    training_of,
    training_out,
)
from forerun.service.workloads import operation_of
from tests.service.conftest import GRAPH

GIVEN = {"optimizer": "adam8bit", "accumulation": 4, "data_parallel": 2, "zero_stage": 3}


def test_every_option_of_a_set_up_can_be_given_and_has_its_default():
    assert set(OPTIONS) == {field.name for field in fields(TrainingSetup)}
    assert training_of("training", 8, TrainingIn()) == TrainingSetup()


def test_what_is_given_reaches_the_workload_and_comes_back():
    setup = training_of("training", 8, training_in(GIVEN | {"lora_rank": None}))
    assert setup == TrainingSetup(**GIVEN)
    assert training_out(Network(GRAPH, 8, "fp32", "training", setup)) == TrainingIn(**GIVEN)
    assert training_in(dict.fromkeys(OPTIONS)) is None


@pytest.mark.parametrize(
    ("phase", "given", "said"),
    [
        ("inference", {"optimizer": "sgd"}, "optimizer: options of training"),
        ("training", {"accumulation": 3}, "accumulation 3 does not divide the batch size 8"),
        ("training", {"zero_stage": 2}, "data_parallel says how many"),
        ("training", {"optimizer": "adamx"}, "optimizer 'adamx'"),
        ("training", {"zero_stage": 4}, "zero_stage 4"),
        ("training", {"tensor_parallel": 0}, "tensor_parallel 0"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(phase, given, said):
    with pytest.raises(BadTrainingSetup, match=said) as refused:
        training_of(phase, 8, training_in(given))
    assert "\n" not in str(refused.value)


def test_devices_are_counted_along_all_directions():
    setup = TrainingSetup(data_parallel=2, tensor_parallel=4, pipeline_parallel=3)
    assert operation_of(Network(GRAPH, 8, "fp32", "training", setup), 90.0).device_count == 24
    assert operation_of(Network(GRAPH)).device_count == 1
