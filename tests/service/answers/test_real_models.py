"""Real model files on two GPUs and a processor: a time above a launch, or the reason for none."""

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.errors import InputError
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.features.operators.features import SHORTEST_KERNEL_MS
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled
from forerun.service.answers.answer import answers_to
from forerun.service.answers.question import question_about
from forerun.service.schemas.workloads import usual_runtime
from tests import real_models

DEVICES = ("l4", "rtx-4090", "epyc-7763")


@pytest.fixture(scope="module")
def answered():
    """(file, device) -> answer to the last question about every file that is at hand."""
    catalog, questions, keys = DeviceCatalog.load(), [], []
    for entry in real_models.listed():
        content = real_models.content_of(entry)
        graph = None if content is None else real_models.read(content, entry["questions"][-1])
        if graph is None or isinstance(graph, InputError):
            continue
        for name in DEVICES:
            device = catalog.get(name)
            software = Software(runtime=usual_runtime(Network(graph), device))
            questions.append(question_about(Query(Network(graph, 1, "fp32"), device, software)))
            keys.append((real_models.name_of(entry), name))
    return dict(zip(keys, answers_to(questions, InUse(bundled())), strict=True))


@pytest.mark.slow
def test_every_real_model_gets_a_time_above_a_launch_or_the_reason_for_none(answered):
    assert len(answered) >= 40 * len(DEVICES)
    for (name, device), answer in answered.items():
        assert not isinstance(answer, InputError), (name, device, answer)
        latency = answer.metrics["latency_ms"]
        if latency is None:
            assert answer.missing["latency_ms"], (name, device)
        else:
            assert latency.value >= SHORTEST_KERNEL_MS, (name, device)
            assert latency.low <= latency.value <= latency.high, (name, device)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_a_tree_ensemble_is_refused_a_time_and_named(answered, device):
    answer = answered["pyopenjtalk-plus-yomi_model-nani_model.onnx", device]
    for metric in ("latency_ms", "power_w", "energy_j"):
        assert answer.metrics[metric] is None
        assert "TreeEnsembleClassifier" in answer.missing[metric]
    assert answer.roofline == {}
