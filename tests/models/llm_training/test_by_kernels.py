"""Steps in eager PyTorch: one answer whether asked as a language model or as a network."""

from dataclasses import replace

import pytest

from forerun.data.errors import InputError
from forerun.data.language_models.training import LlmTraining, TrainingLayout
from forerun.data.list_prices import Price
from forerun.data.query import Query
from forerun.data.workload import Network, TrainingSetup
from forerun.features.llm_training.graph import decoder_graph
from forerun.features.llm_training.layouts import Layouts
from forerun.features.llm_training.step import model_flop, sheet_of
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.answers.answer import Asked, answers_to
from forerun.models.answers.served_models import InUse
from forerun.models.llm_training.answer import (
    Costs,
    TrainingAnswer,
    of_step,
    planned,
    training_answer,
)
from forerun.models.llm_training.by_kernels import METRICS, are_by_kernels
from forerun.models.llm_training.predictors import TrainingPredictors
from tests.devices import CATALOG, H100
from tests.golden.bundle import predictors

LAYOUT = TrainingLayout(micro_batch=2, recompute="full")
LORA = LlmTraining(
    named_language_model("tinyllama-1.1b-chat-v1.0"),
    *(1024, 8, 1, LAYOUT),
    framework="fsdp",
    lora_rank=16,
)
FULL = replace(LORA, lora_rank=0)
COST = Costs(1e9, Price(2.0, "as given"))


@pytest.fixture(scope="module")
def known() -> TrainingPredictors:
    """The predictors of the release."""
    return TrainingPredictors.of(InUse(predictors()))


def answered(known: TrainingPredictors, run: LlmTraining) -> TrainingAnswer:
    return training_answer(run, H100, known, COST)


@pytest.mark.parametrize(
    ("run", "precision", "setup"),
    [
        (LORA, "bf16", {"lora_rank": 16, "adapter_precision": "fp32"}),
        (
            replace(LORA, frozen_weights="nf4"),
            "bf16",
            {"lora_rank": 16, "adapter_precision": "fp32", "frozen_weights": "nf4"},
        ),
        (FULL, "amp_bf16", {}),
    ],
)
def test_a_step_is_answered_as_the_network_that_it_is(known, run, precision, setup) -> None:
    """Time, power and memory with their intervals and grades are those of the network."""
    own = answered(known, run)
    asked = TrainingSetup(attention="flash", checkpoint_blocks=True, accumulation=4, **setup)
    graph = decoder_graph(run.model, run.sequence_tokens)
    query = Query(Network(graph, 8, precision, "training", asked), H100)
    (network,) = answers_to([Asked(query, METRICS)], known.in_use)
    assert not isinstance(network, InputError)
    time, step = network.estimates["latency_ms"], own.estimates["step_s"]
    assert (1e3 * step.value, 1e3 * (step.low or 0.0)) == pytest.approx((time.value, time.low))
    assert own.trust["step_s"] == network.trust["latency_ms"]
    for name in METRICS[1:]:
        assert own.estimates[name] == network.estimates[name], name
        assert own.trust[name] == network.trust[name], name


def test_parts_rates_and_costs_follow_from_the_step(known) -> None:
    """As of any other layout: parts add up, and energy is power times time."""
    own = answered(known, LORA)
    step, power = own.estimates["step_s"], own.estimates["power_w"]
    assert sum(own.breakdown_s.values()) == pytest.approx(step.value)
    assert sum(own.parts_mib.values()) == pytest.approx(own.estimates["peak_memory_mib"].value)
    found = {name: one.value for name, one in own.estimates.items()}
    assert found["tokens_per_s"] == pytest.approx(8 * 1024 / step.value)
    peak = sheet_of(LORA, H100).peak
    assert found["mfu"] == pytest.approx(model_flop(LORA) / (step.value * peak))
    hours = 24.0 * found["run_days"]
    assert found["run_usd"] == pytest.approx(2.0 * hours)
    assert found["run_kwh"] == pytest.approx(hours * power.value / 1e3)
    again = of_step(LORA, H100, step, COST, power)
    assert again["run_kwh"] == own.estimates["run_kwh"]


def test_which_runs_are_eager_pytorch_alone() -> None:
    """FSDP on one device, and adapters on data-parallel devices; nothing else."""

    def found(**changes) -> bool:
        run = replace(LORA, **changes)
        return bool(are_by_kernels(run, Layouts.of(run))[0])

    assert found() and found(lora_rank=0)
    assert found(devices=4) and found(devices=4, framework="deepspeed")
    assert not found(devices=4, lora_rank=0)
    for framework in ("megatron", "torchtitan", "maxtext", "megatron-legacy"):
        assert not found(framework=framework)
    assert not found(framework="deepspeed", lora_rank=0)


def test_a_plan_ranks_by_the_figures_of_its_answers(known) -> None:
    """Layouts on one device: times and memory of a plan are those of each layout's answer."""
    run = replace(LORA, global_batch=4)
    plan = planned(run, H100, known, COST, kept=3).plan
    assert len(plan.best) == 3
    assert [one.seconds for one in plan.best] == sorted(one.seconds for one in plan.best)
    for one in plan.best:
        own = answered(known, one.run)
        assert one.seconds == pytest.approx(own.estimates["step_s"].value)
        assert one.upper_mib == pytest.approx(own.estimates["peak_memory_mib"].high)
        assert own.fits


def test_recomputation_takes_longer_and_less_memory(known) -> None:
    """By kernels, too."""
    none = answered(known, replace(LORA, layout=replace(LAYOUT, recompute="none")))
    again = answered(known, LORA)
    assert again.estimates["step_s"].value > none.estimates["step_s"].value
    name = "peak_memory_mib"
    assert again.estimates[name].value < none.estimates[name].value


def test_what_cannot_fit_has_memory_and_a_reason_but_no_time(known) -> None:
    """As in other layouts."""
    run = replace(FULL, model=named_language_model("llama-3.1-8b"))
    own = training_answer(run, CATALOG.get("rtx-4090"), known, COST)
    assert own.fits is False and "step_s" not in own.estimates and not own.breakdown_s
    assert "does not fit in memory" in own.missing["step_s"]
    assert own.estimates["peak_memory_mib"].value > 24 * 1024


def test_several_devices_with_adapters_have_an_assumed_power(known) -> None:
    """Power of divided networks is not known: the share of the design power stands for it."""
    own = answered(known, replace(LORA, devices=2))
    assert own.trust["power_w"].grade == own.trust["run_kwh"].grade == "C"
    assert own.estimates["power_w"].value == pytest.approx(0.76 * 700.0)
