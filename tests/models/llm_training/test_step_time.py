"""Times of training steps: the contract, laws, and what few runs teach."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from forerun.data.language_models.training import Cluster, LlmTraining, TrainingLayout
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.features.llm_training.layouts import Layouts
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.answers.served_models import InUse
from forerun.models.contract import PredictorContract
from forerun.models.llm_training.plans import layouts_of
from forerun.models.llm_training.predictors import TrainingPredictors
from forerun.models.llm_training.step_time import LlmTrainingStep
from tests.devices import CATALOG
from tests.golden.bundle import predictors

MODELS = [
    named_language_model(name)
    for name in ("meta-llama/Meta-Llama-3-8B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-2-13b-hf")
]


def query(run: LlmTraining, device: str = "h100-sxm-80gb") -> Query:
    """A run on a device of the catalog."""
    return Query(run, CATALOG.get(device), operation=Operation(run.devices))


def made_up_rows(factor: float = 1.3) -> Measurements:
    """Steps whose time is that by the rates, times a factor for one framework."""
    runs = [
        query(replace(run, layout=layout, framework=framework), device)
        for run in (LlmTraining(model, 4096, 256, 32) for model in MODELS)
        for device in ("h100-sxm-80gb", "a100-sxm-80gb")
        for framework, layout in (
            ("megatron", TrainingLayout(tensor=4)),
            ("megatron", TrainingLayout(pipeline=4, micro_batch=2)),
            ("fsdp", TrainingLayout(zero_stage=3)),
            ("fsdp", TrainingLayout(zero_stage=3, recompute="full", micro_batch=4)),
        )
    ]
    plain = LlmTrainingStep().predict(runs).values["latency_ms"]
    slow = np.array([factor if one.llm_training.framework == "fsdp" else 1.0 for one in runs])
    families = [str(one.llm_training.model.family) for one in runs]
    return Measurements.of(
        runs, {"latency_ms": plain * slow}, {"family": families, "config_key": range(len(runs))}
    )


@pytest.fixture(scope="module")
def fitted() -> LlmTrainingStep:
    """A predictor that knows the made-up runs."""
    return LlmTrainingStep().fit(made_up_rows())


class TestContract(PredictorContract):
    """The properties of every predictor."""

    def make(self) -> LlmTrainingStep:
        return LlmTrainingStep().fit(made_up_rows())

    def queries(self) -> Sequence[Query]:
        return [query(LlmTraining(model, 2048, 128, 16)) for model in MODELS]

    def training_rows(self) -> Measurements:
        return made_up_rows()


def step_ms(predictor: LlmTrainingStep, run: LlmTraining, device: str = "h100-sxm-80gb") -> float:
    """Predicted time of a step."""
    return float(predictor.predict([query(run, device)]).values["latency_ms"][0])


def test_the_process_learns_what_a_framework_takes_longer(fitted: LlmTrainingStep) -> None:
    """The factor of one framework carries over to a model and a device that no run has."""
    run = LlmTraining(
        named_language_model("Qwen/Qwen3-8B"), 4096, 256, 32, TrainingLayout(zero_stage=3)
    )
    slow, plain = (
        step_ms(fitted, replace(run, framework=framework), "h200-sxm-141gb")
        for framework in ("fsdp", "megatron")
    )
    assert slow / plain == pytest.approx(1.3, rel=0.08)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.family)
def test_times_follow_the_laws_of_training(fitted: LlmTrainingStep, model: object) -> None:
    """Batch, devices, recomputation, network and bubbles act in the direction that they must."""
    layout = TrainingLayout(tensor=2, pipeline=2)
    run = LlmTraining(model, 4096, 256, 32, layout)  # type: ignore[arg-type]
    base = step_ms(fitted, run)
    again = replace(run, layout=replace(layout, recompute="full"))
    assert base < step_ms(fitted, again) < 1.5 * base
    assert base < step_ms(fitted, replace(run, global_batch=512)) <= 2.0 * base
    assert base / 2.0 <= step_ms(fitted, replace(run, devices=64)) * 1.02 < base * 1.02
    assert base <= step_ms(fitted, replace(run, devices=64, global_batch=512)) * 1.01
    assert base <= step_ms(fitted, replace(run, cluster=Cluster(network_gbit_s=10.0)))
    assert step_ms(fitted, run, "a100-sxm-80gb") > base


@pytest.mark.parametrize("framework", ["torchtitan", "fsdp", "megatron"])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_recomputation_never_makes_a_released_step_faster(framework: str, precision: str) -> None:
    """All layouts of some searches, by the predictor of the release, value and both ends.

    Torchtitan in FP8 on an MI300X was up to 5 % faster with it.
    """
    predictor = TrainingPredictors.of(InUse(predictors())).step
    for device, model in (("mi300x", MODELS[0]), ("b200-sxm-180gb", MODELS[1])):
        run = LlmTraining(model, 4096, 256, 64, framework=framework, precision=precision)  # type: ignore[arg-type]
        none = [
            one for one in layouts_of(run, CATALOG.get(device)) if one.recompute == "none"
        ][:400]  # fmt: skip
        pairs = [
            predictor.of_layouts(run, CATALOG.get(device), Layouts.of(run, own))
            for own in (none, [replace(one, recompute="full") for one in none])
        ]
        for name in ("seconds", "low", "high"):
            less, more = (getattr(own, name) for own in pairs)
            assert len(less) > 5 and (more >= less * (1.0 - 1e-12)).all(), name


def test_a_pipeline_waits_as_long_as_its_formula_says() -> None:
    """The bubble is (p - 1) / m of the busy time, over the groups of layers on a stage (arXiv
    2104.04473, section 2.2).
    """
    model = replace(MODELS[2], vocabulary=0)
    for pipeline, virtual in ((4, 1), (4, 2), (8, 5)):
        layout = TrainingLayout(pipeline=pipeline, virtual_stages=virtual)
        run = LlmTraining(model, 4096, 64, pipeline, layout)
        parts = LlmTrainingStep().predict([query(run)])[0].breakdown_ms
        busy = sum(parts.values()) - parts["bubble"] - parts["optimizer"]
        assert parts["bubble"] / busy == pytest.approx((pipeline - 1) / virtual / 64, rel=1e-6)


def test_nothing_is_faster_than_its_arithmetic(fitted: LlmTrainingStep) -> None:
    """Model FLOP utilisation stays below one at the lower end of every interval."""
    runs = [query(LlmTraining(m, 2048, 64, 8), d) for m in MODELS for d in ("mi300x", "b200")]
    found = fitted.predict(runs)
    for one, low in zip(runs, found.low["latency_ms"], strict=True):
        run = one.llm_training
        assert low >= 1e3 * fitted.of_layouts(run, one.device, Layouts.of(run)).bound[0] * (
            1.0 - 1e-9
        )


def test_what_was_not_measured_is_a_limit_and_widens(fitted: LlmTrainingStep) -> None:
    """A device, a framework and a size that no run has; known runs have neither."""
    known = made_up_rows().queries[0]
    near = fitted.predict([known])
    assert not near[0].limits
    run = replace(
        known.llm_training, framework="deepspeed", sequence_tokens=131_072, global_batch=8
    )
    far = fitted.predict([query(run, "mi300x")])
    said = " ".join(map(str, far[0].limits))
    assert "deepspeed" in said
    assert "no training on this device" in said
    assert "sequences of 131,072 tokens; measured runs had 4,096 to 4,096" in said
    widths = [np.log(f.high["latency_ms"] / f.low["latency_ms"])[0] for f in (near, far)]
    assert widths[1] > 2.0 * widths[0]


def test_formats_that_a_device_lacks_are_said(fitted: LlmTrainingStep) -> None:
    """Products in FP8 on an A100 are those in 16 bits, which is no measured run."""
    run = replace(made_up_rows().queries[0].llm_training, precision="fp8")
    on_a100, on_h100 = (
        " ".join(map(str, fitted.predict([query(run, name)])[0].limits))
        for name in ("a100-sxm-80gb", "h100-sxm-80gb")
    )
    assert "no fp8 peak" in on_a100
    assert "no fp8 peak" not in on_h100


def test_a_framework_that_was_not_measured_on_the_architecture_is_said(
    fitted: LlmTrainingStep,
) -> None:
    """Of two frameworks on two architectures, one was measured on one of them alone."""
    rows = made_up_rows()
    on_hopper = [one.device.architecture == "hopper" for one in rows.queries]
    sharded = [one.llm_training.framework == "fsdp" for one in rows.queries]
    some = LlmTrainingStep().fit(rows.take(~(np.array(on_hopper) & np.array(sharded))))
    asked = next(o for o, h, s in zip(rows.queries, on_hopper, sharded, strict=True) if h and s)
    assert "fsdp on hopper GPUs" in " ".join(map(str, some.predict([asked])[0].limits))
    assert not fitted.predict([asked])[0].limits


def test_own_runs_move_the_device_they_are_of(fitted: LlmTrainingStep) -> None:
    """Three runs of a device twice as slow as predicted bring its next answer most of the way, and
    leave another device within its interval.
    """
    own = [
        query(LlmTraining(model, 4096, 256, 32, TrainingLayout(tensor=4)), "mi300x")
        for model in MODELS
    ]
    before = fitted.predict(own).values["latency_ms"]
    groups = {"family": ["a", "b", "c"], "config_key": range(3)}
    adapted = fitted.adapt(Measurements.of(own, {"latency_ms": 2.0 * before}, groups))
    after = adapted.predict(own).values["latency_ms"]
    assert (after > 1.5 * before).all()
    other = made_up_rows().queries[:1]
    assert adapted.predict(other).values["latency_ms"] == pytest.approx(
        fitted.predict(other).values["latency_ms"], rel=0.15
    )


def test_micro_batches_outside_the_range_are_counted_as_they_are(fitted: LlmTrainingStep) -> None:
    """Neither as logarithms nor as one more."""
    known = made_up_rows().queries[0]
    run = replace(known.llm_training, global_batch=known.llm_training.data * 1024)
    run = replace(run, layout=replace(run.layout, micro_batch=1))
    measured = sorted({one.llm_training.micro_batches for one in made_up_rows().queries})
    (found,) = fitted.predict([replace(known, workload=run)])
    line = f"1,024 micro-batches a step; measured runs had {measured[0]:,} to {measured[-1]:,}"
    assert line in " ".join(map(str, found.limits))
